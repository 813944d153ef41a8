#!/usr/bin/env python3
"""Writes the expected values of tests/unit/tensor into tests/data/tensor, from numpy, PIL, soundfile and exact fractions.

    .venv/bin/python tests/unit/tensor/make_data.py

The files are committed; this only needs to run again when a test wants other data.
"""
import os
import random
import struct
from decimal import Decimal
from fractions import Fraction

import numpy as np

OUT = os.path.join(os.path.dirname(__file__), "../../data/tensor")

# name -> (stored significand bits, exponent bias, highest exponent field)
FORMATS = {"f64": (52, 1023, 2047), "f32": (23, 127, 255), "f16": (10, 15, 31), "bf16": (7, 127, 255)}


def round_exact(x: Fraction, fmt: str) -> int:
    """Bits of the float nearest to x >= 0, ties to even, by the definition."""
    man, bias, top = FORMATS[fmt]
    if x == 0:
        return 0
    e = x.numerator.bit_length() - x.denominator.bit_length()
    if Fraction(2) ** e > x:
        e -= 1
    e = max(e, 1 - bias)
    units = x / Fraction(2) ** (e - man)
    n = units.numerator // units.denominator
    rest = units - n
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and n & 1):
        n += 1
    if n >= 1 << (man + 1):
        n >>= 1
        e += 1
    if n < 1 << man:
        return n  # subnormal
    if e + bias >= top:
        return top << man
    return (e + bias) << man | (n & ((1 << man) - 1))


def value_of(bits: int, fmt: str) -> Fraction:
    man, bias, _ = FORMATS[fmt]
    e, m = bits >> man, bits & ((1 << man) - 1)
    return Fraction(m | (1 << man if e else 0)) * Fraction(2) ** ((e or 1) - bias - man)


def decimal_text(x: Fraction) -> str:
    """All digits of a dyadic fraction."""
    k = 0
    while x.denominator != 1:
        x *= 10
        k += 1
    return "%de-%d" % (x.numerator, k) if k else str(x.numerator)


def hard_decimals(rng):
    yield from ["0", "0.0", "1", "0.1", "1e0", "123456789012345678901234567890", "1e22", "1e23", "9007199254740993", "1e308",
                "9007199254740992.9999999999999999999999999", "2.2250738585072011e-308", "2.2250738585072014e-308",
                "1.7976931348623157e308", "1.7976931348623158e308", "1.7976931348623159e308", "1.8e308", "1e309", "1e400",
                "4.9406564584124654e-324", "2.4703282292062327e-324", "2.4703282292062328e-324", "1e-400", "1e-324",
                "3.4028235677973366e38", "3.4028235677973365e38", "3.4028236e38", "65504", "65519.99999999999999999",
                "65520", "65519.9999999999999999999999999999999999999", "0." + "0" * 400 + "1e400", "1" + "0" * 400 + "e-400",
                "6.631236846766476e-316", "1.2345678901234567890123456789e-50", "7.2057594037927933e16",
                "8.98846567431158e307", "0.000000000000000000000000000000000000000000000000000000000000001", "100000e-5",
                "18014398509481985", "5e-324", "1.00000005960464477539062500", "1.000000059604644775390625000000001",
                "1.000000059604644775390624999999999", "2.98023223876953125e-8", "2.980232238769531251e-8"]
    for fmt in FORMATS:
        man, bias, top = FORMATS[fmt]
        for _ in range(60):  # midpoints between neighbours, exactly and one step to each side, far behind the digits
            bits = rng.randrange(0, (top << man) - 1)
            mid = (value_of(bits, fmt) + value_of(bits + 1, fmt)) / 2
            text = decimal_text(mid)
            digits, _, exp = text.partition("e")
            if len(digits) > 780:
                continue
            exp = int(exp or 0)
            yield text
            yield "%d" % (int(digits) * 10**31 + 1) + "e%d" % (exp - 31)
            yield "%de%d" % (int(digits) * 10**31 - 1, exp - 31)
    for _ in range(400):
        n = rng.randrange(1, 26)
        digits = "".join(rng.choice("0123456789") for _ in range(n)).lstrip("0") or "7"
        yield "%s.%se%d" % (digits[0], digits[1:] or "0", rng.randrange(-330, 312))
    for _ in range(200):
        yield repr(float(np.float32(rng.uniform(-1, 1) ** 2)))


def decimals():
    rng = random.Random(1)
    with open(os.path.join(OUT, "decimals.txt"), "w") as f:
        for text in hard_decimals(rng):
            x = Fraction(text)
            f.write(text + " " + " ".join("%x" % round_exact(x, fmt) for fmt in FORMATS) + "\n")


def digits_of(text: str) -> str:
    d = Decimal(text)
    _, digits, exp = d.as_tuple()
    digits = "".join(map(str, digits))
    cut = digits.rstrip("0")
    return "%s %d" % (cut, exp + len(digits) - len(cut))


def shortest():
    rng = random.Random(2)
    with open(os.path.join(OUT, "shortest.txt"), "w") as f:
        cases64 = [1, 2, 3, 0x10000000000000, 0xFFFFFFFFFFFFF, 0x7FEFFFFFFFFFFFFF, 0x4340000000000000, 0x4430000000000000]
        cases64 += [e << 52 for e in range(1, 2047, 13)] + [rng.getrandbits(63) for _ in range(700)]
        cases64 += [struct.unpack("<Q", struct.pack("<d", v))[0] for v in (0.1, 1.0, 100.0, 1e16, 1e17, 1e21, 1e22, 1e23, 0.0001,
                    0.00001, 5e-324, 123456.789, 9007199254740993.0, 0.3)]
        for bits in cases64:
            v = struct.unpack("<d", struct.pack("<Q", bits))[0]
            if bits >> 52 < 2047:
                f.write("f64 %x %s\n" % (bits, digits_of(repr(v))))
        cases32 = [1, 2, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x4B800000] + [e << 23 for e in range(1, 255)]
        cases32 += [rng.getrandbits(31) for _ in range(700)]
        for bits in cases32:
            v = np.array([bits], np.uint32).view(np.float32)[0]
            if np.isfinite(v):
                f.write("f32 %x %s\n" % (bits, digits_of(np.format_float_scientific(v, unique=True))))
        for bits in [1, 2, 3, 0x3FF, 0x400, 0x7BFF] + [e << 10 for e in range(1, 31)] + [rng.getrandbits(15) for _ in range(300)]:
            v = np.array([bits], np.uint16).view(np.float16)[0]
            if np.isfinite(v):
                f.write("f16 %x %s\n" % (bits, digits_of(np.format_float_scientific(v, unique=True))))


def npy():
    """Files by numpy; beside each NAME.npy the expected bytes NAME.bin: what the tensor holds in C order, little-endian."""
    a = np.arange(24).reshape(2, 3, 4)
    files = {"f4_c": a.astype("<f4") / 7, "f4_fortran": np.asfortranarray(a.astype("<f4") / 7), "i8_big": a.astype(">i8") - 12,
             "u2_big_fortran": np.asfortranarray(a.astype(">u2")), "f2": (a / 7).astype("<f2"), "b1": (a % 3 == 0),
             "scalar": np.float64(2.5), "empty": np.zeros((0, 3), np.int32), "u1": a.astype("u1"), "f8_1d": np.array([0.1, -1e300])}
    for name, v in files.items():
        v = np.asarray(v)
        np.save(os.path.join(OUT, name + ".npy"), v)
        with open(os.path.join(OUT, name + ".bin"), "wb") as f:
            f.write(np.ascontiguousarray(v.astype(v.dtype.newbyteorder("<"))).tobytes())
    with open(os.path.join(OUT, "v2.npy"), "wb") as f:
        np.lib.format.write_array(f, files["f4_c"], version=(2, 0))
    words = np.array([["a", "", "caf\u00e9"], ["\U0001f600x", "longer text", "z"]])
    np.save(os.path.join(OUT, "unicode.npy"), words)
    np.save(os.path.join(OUT, "unicode_big_fortran.npy"), np.asfortranarray(words.astype(words.dtype.newbyteorder(">"))))
    np.save(os.path.join(OUT, "bytes.npy"), np.array([b"ab", b"", b"\xff\x00\x01"]))
    with open(os.path.join(OUT, "unicode.bin"), "wb") as f:
        for w in words.ravel():
            f.write(struct.pack("<I", len(w.encode())) + w.encode())
    np.save(os.path.join(OUT, "bad_object.npy"), np.array([1, None], object), allow_pickle=True)
    np.save(os.path.join(OUT, "bad_complex.npy"), np.array([1j]))
    np.save(os.path.join(OUT, "bad_struct.npy"), np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")]))
    np.save(os.path.join(OUT, "bad_date.npy"), np.array(["2024-01-01"], "M8[D]"))


def pictures():
    """A small smooth picture in every format; beside each NAME.EXT Pillow's RGB bytes NAME_EXT.rgb, and resized ones."""
    from PIL import Image

    y, x = np.mgrid[0:31, 0:45]
    rgb = np.stack([x * 255 // 44, y * 255 // 30, (x + 2 * y) * 255 // 104], -1).astype(np.uint8)
    rgb[8:16, 10:20] = (200, 30, 60)
    im = Image.fromarray(rgb)
    alpha = np.dstack([rgb, (x * 5 % 256).astype(np.uint8)])
    saved = {"photo.jpg": (im, dict(quality=92)), "progressive.jpg": (im, dict(quality=90, progressive=True)),
             "sampling444.jpg": (im, dict(quality=90, subsampling=0)), "grey.jpg": (im.convert("L"), dict(quality=90)),
             "cmyk.jpg": (im.convert("CMYK"), dict(quality=95)), "photo.png": (im, {}), "alpha.png": (Image.fromarray(alpha), {}),
             "palette.png": (im.quantize(16), {}), "grey.png": (im.convert("L"), {}), "bits.png": (im.convert("1"), {}),
             "lossless.webp": (im, dict(lossless=True)), "lossy.webp": (im, dict(quality=90)),
             "alpha.webp": (Image.fromarray(alpha), dict(lossless=True, exact=True))}
    for name, (picture, options) in saved.items():
        path = os.path.join(OUT, name)
        picture.save(path, **options)
        with open(os.path.join(OUT, name.replace(".", "_") + ".rgb"), "wb") as f:
            f.write(Image.open(path).convert("RGB").tobytes())
    im.save(os.path.join(OUT, "animated.webp"), save_all=True, append_images=[im.rotate(90)], duration=10)
    for w, h in ((20, 13), (45, 7), (97, 64), (1, 1), (33, 31)):
        with open(os.path.join(OUT, "bilinear_%dx%d.rgb" % (w, h)), "wb") as f:
            f.write(im.resize((w, h), Image.Resampling.BILINEAR).tobytes())
    for w, h in ((20, 13), (15, 31)):  # area means by the definition, in exact steps
        a = rgb.astype(float)
        for axis, out in ((0, h), (1, w)):
            n = a.shape[axis]
            m = np.array([[max(0, min(k + 1, (i + 1) * n / out) - max(k, i * n / out)) for k in range(n)] for i in range(out)])
            a = np.moveaxis(np.tensordot(m / m.sum(1, keepdims=True), a, (1, axis)), 0, axis)
        with open(os.path.join(OUT, "area_%dx%d.rgb" % (w, h)), "wb") as f:
            f.write(np.clip(np.rint(a), 0, 255).astype(np.uint8).tobytes())
    # plain bilinear by the definition (OpenCV's INTER_LINEAR): the four pixels around the mapped centre
    for w, h in ((20, 13), (70, 50)):
        sx = np.clip((np.arange(w) + 0.5) * 45 / w - 0.5, 0, 44)
        sy = np.clip((np.arange(h) + 0.5) * 31 / h - 0.5, 0, 30)
        x0, y0 = np.floor(sx).astype(int), np.floor(sy).astype(int)
        x1, y1 = np.minimum(x0 + 1, 44), np.minimum(y0 + 1, 30)
        fx, fy = (sx - x0)[None, :, None], (sy - y0)[:, None, None]
        a = rgb.astype(float)
        v = (a[y0][:, x0] * (1 - fx) + a[y0][:, x1] * fx) * (1 - fy) + (a[y1][:, x0] * (1 - fx) + a[y1][:, x1] * fx) * fy
        with open(os.path.join(OUT, "plain_%dx%d.rgb" % (w, h)), "wb") as f:
            f.write(np.rint(v).astype(np.uint8).tobytes())
    mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    v = (rgb.astype(np.float32) * np.float32(1 / 255) - mean) / std
    with open(os.path.join(OUT, "normalised_chw.bin"), "wb") as f:
        f.write(np.ascontiguousarray(v.transpose(2, 0, 1)).astype("<f4").tobytes())


def sounds():
    """A quarter of a second of two tones in every format; beside each NAME.EXT the mean of the channels as soundfile reads it."""
    import soundfile

    t = np.arange(2000) / 8000
    stereo = np.stack([0.5 * np.sin(2 * np.pi * 440 * t), 0.3 * np.sin(2 * np.pi * 1000 * t)], 1)
    files = {"tone16.wav": ("WAV", "PCM_16", stereo), "tone24.wav": ("WAV", "PCM_24", stereo[:, 0]), "tonef.wav": ("WAV", "FLOAT", stereo),
             "tone.flac": ("FLAC", "PCM_16", stereo), "tone.aiff": ("AIFF", "PCM_16", stereo[:, 1]), "tone.au": ("AU", "ULAW", stereo[:, 0]), "tone.caf": ("CAF", "ALAC_16", stereo),
             "tone.ogg": ("OGG", "VORBIS", stereo), "tone.mp3": ("MP3", "MPEG_LAYER_III", stereo)}
    for name, (kind, subtype, v) in files.items():
        path = os.path.join(OUT, name)
        soundfile.write(path, v, 8000, format=kind, subtype=subtype)
        got, rate = soundfile.read(path, dtype="float32", always_2d=True)
        with open(os.path.join(OUT, name.replace(".", "_") + ".f32"), "wb") as f:
            f.write(got.mean(1, dtype=np.float32).astype("<f4").tobytes())


def main():
    os.makedirs(OUT, exist_ok=True)
    decimals()
    shortest()
    npy()
    pictures()
    sounds()


if __name__ == "__main__":
    main()
