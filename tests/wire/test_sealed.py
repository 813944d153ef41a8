"""test_sealed.py: sealed and signed models: `inferd seal`, `inferd sign`, and what a server loads of them.

The format is decoded here a second time, from docs/reference/sealed-models.md, with the Python package `cryptography`: files that inferd sealed
are opened by it, and files that it sealed are loaded by inferd. Every refusal must name the file.
"""
import hashlib
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile

import pytest
import requests
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from inferd_server import BINARY, ROOT, Server, wait_equal, wait_until, write_fake

MODELS = ROOT / "tests/data/models"
LLM = ROOT / "tests/data/llm"
HEADER = struct.Struct("<8sII8s32sQ")


def inferd(*args, env=None, ok=True):
    done = subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, env={**os.environ, **(env or {})}, timeout=120)
    if ok:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


# ---- the format, by its page ----

def key_id(key):
    return hashlib.sha256(b"inferd seal key" + key).digest()[:8]


def file_key(key, salt):
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=salt, info=b"inferd sealed model v1").derive(key)


def unseal(data, key):
    magic, version, chunk, ident, salt, size = HEADER.unpack(data[:64])
    assert magic == b"INFDSEAL" and version == 1 and ident == key_id(key)
    cipher, n = AESGCM(file_key(key, salt)), max(1, -(-size // chunk))
    assert len(data) == 64 + size + 16 * n
    out, at = b"", 64
    for i in range(n):
        length = min(chunk, size - i * chunk) + 16
        aad = data[:64] + struct.pack("<QB", i, i == n - 1)
        out += cipher.decrypt(struct.pack("<QI", i, 0), data[at:at + length], aad)
        at += length
    return out


def seal(content, key, chunk=4096):
    salt = os.urandom(32)
    header = HEADER.pack(b"INFDSEAL", 1, chunk, key_id(key), salt, len(content))
    cipher, n = AESGCM(file_key(key, salt)), max(1, -(-len(content) // chunk))
    return header + b"".join(cipher.encrypt(struct.pack("<QI", i, 0), content[i * chunk:(i + 1) * chunk],
                                            header + struct.pack("<QB", i, i == n - 1)) for i in range(n))


class Keys:
    def __init__(self, folder):
        self.file = folder / "seal.key"
        inferd("seal", "new-key", self.file)
        self.key = bytes.fromhex(self.file.read_text())
        self.signer = folder / "sign.key"
        self.public = folder / "sign.key.pub"
        inferd("sign", "new-key", self.signer)

    @property
    def sealed(self):
        return [f"--models.seal_keys={self.file}"]

    @property
    def signed(self):
        return [f"--models.signature_keys={self.public}"]


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return Keys(tmp_path_factory.mktemp("keys"))


def copy_model(name, to, folder=None):
    """tests/data/models/NAME as version 1 of TO/NAME."""
    version = to / (folder or name) / "1"
    shutil.copytree(MODELS / name, version, symlinks=True)
    return version


# ---- the format ----

@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (5 << 19) + 7])
def test_python_opens_what_inferd_sealed(tmp_path, keys, size):
    content = os.urandom(size)
    file = tmp_path / "weights.bin"
    file.write_bytes(content)
    inferd("seal", "encrypt", file, "--key", keys.file)
    data = file.read_bytes()
    assert HEADER.unpack(data[:64])[2] == 1 << 20
    assert unseal(data, keys.key) == content
    if size:
        with pytest.raises(InvalidTag):
            unseal(data[:-1] + bytes([data[-1] ^ 1]), keys.key)
    assert inferd("seal", "encrypt", file, "--key", keys.file, ok=False).returncode == 1  # not twice
    inferd("seal", "decrypt", file, "--output", tmp_path / "back", "--key", keys.file)
    assert (tmp_path / "back").read_bytes() == content
    assert (tmp_path / "back").stat().st_mode & 0o777 == 0o600 and keys.file.stat().st_mode & 0o777 == 0o600


def test_inferd_opens_what_python_sealed(tmp_path, keys):
    for size in (0, 1, 4095, 4096, 4097, 12288):
        content = os.urandom(size)
        (tmp_path / "in").write_bytes(seal(content, keys.key))
        inferd("seal", "decrypt", tmp_path / "in", "--output", tmp_path / "out", "--key", keys.file)
        assert (tmp_path / "out").read_bytes() == content


def test_every_flipped_byte_is_found(tmp_path, keys):
    content, file = os.urandom(10000), tmp_path / "model.bin"
    good = seal(content, keys.key)
    chunk = 4096 + 16
    parts = [good[:64], good[64:64 + chunk], good[64 + chunk:64 + 2 * chunk], good[64 + 2 * chunk:]]
    bad = {f"byte {i}": good[:i] + bytes([good[i] ^ 0x40]) + good[i + 1:] for i in [*range(0, 64, 7), 64, 64 + chunk - 1, len(good) - 1, len(good) - 17]}
    bad |= {"cut": good[:-1], "last chunk cut off": b"".join(parts[:3]), "longer": good + b"x", "swapped": b"".join([parts[0], parts[2], parts[1], parts[3]]),
            "header alone": good[:64], "half a header": good[:30],
            "last chunk of another file": b"".join(parts[:3]) + seal(content, keys.key)[64 + 2 * chunk:],
            "shorter, header told": HEADER.pack(*HEADER.unpack(good[:64])[:5], 8192) + parts[1] + parts[2]}
    for what, data in bad.items():
        file.write_bytes(data)
        done = inferd("seal", "decrypt", file, "--output", tmp_path / "out", "--key", keys.file, ok=False)
        assert done.returncode == 1 and str(file) in done.stderr and not (tmp_path / "out").exists(), what


def test_keys(tmp_path, keys):
    """Rotation: any of several keys, from files and the environment. A file that everybody may read is refused; no key is ever shown."""
    old, new = os.urandom(32), os.urandom(32)
    (tmp_path / "a").write_bytes(seal(b"one", old))
    (tmp_path / "both").write_text(f"# new first\n{new.hex()}\n{old.hex()}\n")
    (tmp_path / "both").chmod(0o600)
    out = tmp_path / "out"
    inferd("seal", "decrypt", tmp_path / "a", "--output", out, "--key", tmp_path / "both")
    inferd("seal", "decrypt", tmp_path / "a", "--output", out, env={"INFERD_SEAL_KEYS": f"{new.hex()},{old.hex()}"})
    inferd("seal", "encrypt", out, "--key", tmp_path / "both")
    assert unseal(out.read_bytes(), new) == b"one"
    wrong = inferd("seal", "decrypt", tmp_path / "a", "--output", out, "--key", keys.file, ok=False)
    assert key_id(old).hex() in wrong.stderr and str(tmp_path / "a") in wrong.stderr
    (tmp_path / "both").chmod(0o644)
    refused = inferd("seal", "decrypt", tmp_path / "a", "--output", out, "--key", tmp_path / "both", ok=False)
    assert "0644" in refused.stderr and refused.returncode == 1
    bad = inferd("seal", "decrypt", tmp_path / "a", "--output", out, env={"INFERD_SEAL_KEYS": old.hex()[:-2]}, ok=False)
    assert "64 hex digits" in bad.stderr and old.hex()[:16] not in bad.stderr
    assert inferd("seal", "new-key", keys.file, ok=False).returncode == 1  # never over an old one


# ---- loading ----

def check(root, *args, env=None):
    return inferd("check", root, *args, env=env, ok=False)


def refused(root, names, *args, env=None):
    done = check(root, *args, env=env)
    assert done.returncode != 0, done.stdout
    for name in names:
        assert name in done.stdout + done.stderr, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_onnx_is_served_from_memory(tmp_path, keys):
    """The sealed model answers as the plain one does, leaves nothing in the cache (its plain twin does), and no key is in the log."""
    plain, sealed = tmp_path / "plain", tmp_path / "sealed"
    for root in (plain, sealed):
        copy_model("external", root)
        copy_model("conv", root)
    inferd("seal", "encrypt", *[sealed / f for f in ("external/1/model.onnx", "external/1/data/weights.bin", "conv/1/model.onnx")], "--key", keys.file)
    answers = {}
    for root in (plain, sealed):
        cache = tmp_path / (root.name + "-cache")
        with Server(root, args=[*keys.sealed, f"--onnxruntime.cache_dir={cache}", "--log.level=debug"]) as s:
            for model in ("external", "conv"):
                meta = requests.get(f"{s.url}/v2/models/{model}").json()
                tensor = meta["inputs"][0]
                shape = [2 if d < 0 else d for d in tensor["shape"]]
                count = 1
                for d in shape:
                    count *= d
                body = {"inputs": [{"name": tensor["name"], "datatype": tensor["datatype"], "shape": shape, "data": [0.5 * (i % 7) for i in range(count)]}]}
                answer = s.infer(model, body)
                assert answer.status_code == 200, answer.text
                answers.setdefault(model, []).append(answer.json()["outputs"])
            log = "\n".join(s.log_lines)
            assert keys.key.hex() not in log.lower()
            wait_equal(lambda: {r["file"] for r in s.records("model_file_unsealed")}, {"model.onnx", "data/weights.bin"} if root == sealed else set())
        if root == plain:
            assert list(cache.glob("*.onnx")), "the plain twin was not cached: the test shows nothing"
        else:
            assert not cache.exists() or not list(cache.iterdir())
    for model, (a, b) in answers.items():
        assert a == b, model


def test_sealed_files_without_their_key(tmp_path, keys):
    version = copy_model("conv", tmp_path)
    inferd("seal", "encrypt", version / "model.onnx", "--key", keys.file)
    assert key_id(keys.key).hex() in refused(tmp_path, ["model.onnx", "models.seal_keys"])
    assert check(tmp_path, *keys.sealed).returncode == 0
    data = bytearray((version / "model.onnx").read_bytes())
    data[-20] ^= 1
    (version / "model.onnx").write_bytes(data)
    refused(tmp_path, ["model.onnx", "was changed"], *keys.sealed)


def test_not_enough_memory_is_said_with_numbers(tmp_path, keys):
    version = tmp_path / "big/1"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(seal(bytes(40 << 20), keys.key, chunk=1 << 20))
    text = refused(tmp_path, ["model.onnx", "52 MiB", "16 MiB"], *keys.sealed, "--repository.memory_limit=16MiB")
    assert "held in memory" in text


def test_external_data_in_a_branch_is_refused_by_name(tmp_path, keys):
    """ONNX Runtime reads such a file itself and would take the sealed bytes for weights."""
    copy_model("external_branch_inside", tmp_path)
    assert check(tmp_path, *keys.sealed).returncode == 0
    data = [f for f in (tmp_path / "external_branch_inside/1").rglob("*") if f.is_file() and f.name != "model.onnx"]
    for file in data:
        inferd("seal", "encrypt", file, "--key", keys.file)
    assert data
    refused(tmp_path, [data[0].name, "inside a branch"], *keys.sealed)


def test_require_sealed(tmp_path, keys):
    write_fake(tmp_path, "echo", "input = X FP32 [-1,2]\noutput = Y FP32 [-1,2] copy X\n")
    refused(tmp_path, ["model.fake", "not sealed"], *keys.sealed, "--models.require_sealed")
    inferd("seal", "encrypt", tmp_path / "echo/1/model.fake", "--key", keys.file)
    assert check(tmp_path, *keys.sealed, "--models.require_sealed").returncode == 0
    refused(tmp_path, ["models.require_sealed", "models.seal_keys"], "--models.require_sealed")


def complete(server, model):
    body = {"model": model, "prompt": "The quick brown", "max_tokens": 8, "temperature": 0, "logprobs": 1}
    answer = requests.post(server.url + "/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def test_language_models(tmp_path, keys):
    """A GGUF file and a folder in Hugging Face's layout: the same tokens and log-probabilities sealed as plain, and signed beside."""
    root = tmp_path / "models"
    names = {"plain-gguf": "llama.gguf", "sealed-gguf": "llama.gguf", "plain-untied": "phi3.gguf", "sealed-untied": "phi3.gguf", "signed-gguf": "llama.gguf"}
    for name, file in names.items():
        (root / name / "1").mkdir(parents=True)
        shutil.copy(LLM / file, root / name / "1/model.gguf")
    for name in ("plain-hf", "sealed-hf"):
        shutil.copytree(LLM / "qwen2", root / name / "1")
    for folder in root.glob("sealed-*"):
        inferd("seal", "encrypt", *[f for f in (folder / "1").iterdir() if f.is_file()], "--key", keys.file)
    inferd("sign", "models", "--key", keys.signer, root / "signed-gguf")
    with Server(root, args=[*keys.sealed, *keys.signed]) as s:
        assert complete(s, "sealed-gguf") == complete(s, "plain-gguf") == complete(s, "signed-gguf")
        assert complete(s, "sealed-untied") == complete(s, "plain-untied")
        assert complete(s, "sealed-hf") == complete(s, "plain-hf")
        files = {"model.gguf", "config.json", "tokenizer.json", "model.safetensors"}
        wait_until(lambda: {r["file"] for r in s.records("model_file_unsealed")} >= files)


def test_the_process_can_not_be_dumped(keys):
    """/proc/PID of a process that made itself undumpable belongs to root; its twin without a key belongs to its user. Neither may be root here."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        write_fake(root, "echo", "input = X FP32 [-1,2]\noutput = Y FP32 [-1,2] copy X\n")
        root.chmod(0o755)
        drop = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") if os.getuid() == 0 else ()
        if drop and (not shutil.which("setpriv") or subprocess.run([*drop, BINARY, "version"], capture_output=True).returncode):
            pytest.skip("nobody may not run the binary here")
        owners = []
        for env in ({}, {"INFERD_SEAL_KEYS": keys.key.hex()}):
            with Server(root, prefix=drop, args=["--state_dir=-"], env=env) as s:
                owners.append(os.stat(f"/proc/{s.process.pid}/environ").st_uid)
                assert s.metric("process_open_fds") > 3 and s.metric("process_resident_memory_bytes") > 1e6  # it still sees itself
        assert owners[0] != 0 and owners[1] == 0


def test_a_sealed_file_is_not_quantised(tmp_path, keys):
    shutil.copy(LLM / "llama.gguf", tmp_path / "a.gguf")
    inferd("seal", "encrypt", tmp_path / "a.gguf", "--key", keys.file)
    done = inferd("quantize", tmp_path / "a.gguf", tmp_path / "b.gguf", ok=False)
    assert done.returncode == 1 and "is sealed" in done.stderr and not (tmp_path / "b.gguf").exists()


# ---- signatures ----

@pytest.fixture
def signed(tmp_path, keys):
    """Two models that need no runtime, so that each of many checks is short; `other` has a file in a folder of its version."""
    root = tmp_path / "signed"
    write_fake(root, "conv", "input = X FP32 [-1,2]\noutput = Y FP32 [-1,2] copy X\n", config="max_batch_size: 4\n")
    (write_fake(root, "other", "input = X FP32 [-1,2]\noutput = Y FP32 [-1,2] copy X\n") / "data").mkdir()
    (root / "other/1/data/notes").write_text("x")
    inferd("sign", "models", "--key", keys.signer, root)
    return root


def parse_signature(path):
    body, _, rest = path.read_text().partition("\nsignature ")
    body += "\n"
    files = {}
    for line in body.splitlines()[3:]:
        kind, digest, size, name = line.split(" ", 3)
        files[(kind, name)] = (digest, int(size))
    ident, sig = rest.split()
    return body.encode(), body.splitlines()[:3], files, bytes.fromhex(ident), bytes.fromhex(sig)


def test_python_verifies_what_inferd_signed(signed, keys):
    public = serialization.load_pem_public_key(keys.public.read_bytes())
    raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    body, head, files, ident, sig = parse_signature(signed / "conv/1/inferd.sig")
    public.verify(sig, body)
    assert ident == hashlib.sha256(b"inferd sign key" + raw).digest()[:8]
    assert head == ["inferd-signature 1", "model conv", "version 1"]
    assert set(files) == {("file", "model.fake"), ("model-file", "model.yaml")}
    for (kind, name), (digest, size) in files.items():
        content = (signed / "conv" / ("1" if kind == "file" else ".") / name).read_bytes()
        assert (hashlib.sha256(content).hexdigest(), len(content)) == (digest, size)
    _, _, files, _, _ = parse_signature(signed / "other/1/inferd.sig")
    assert set(files) == {("file", "model.fake"), ("file", "data/notes")}


def test_signed_models_load_and_changed_ones_do_not(signed, keys, tmp_path):
    strict = [*keys.signed, "--models.require_signature"]
    assert check(signed, *strict).returncode == 0

    def spoil(relative, change):
        path = signed / relative
        good = path.read_bytes()
        path.write_bytes(change(good))
        return lambda: path.write_bytes(good)

    cases = [
        ("conv/1/model.fake", lambda b: b[:-1] + b" ", ["model.fake", "not the file that was signed"]),
        ("conv/model.yaml", lambda b: b"max_batch_size: 8\n", ["model.yaml", "not the file that was signed"]),
        ("conv/1/inferd.sig", lambda b: b.replace(b"version 1", b"version 2"), ["inferd.sig", "was changed"]),
        ("conv/1/inferd.sig", lambda b: b[:-3] + bytes([b[-3] ^ 1]) + b[-2:], ["inferd.sig"]),
        ("conv/1/inferd.sig", lambda b: b.replace(b"model-file", b"file"), ["inferd.sig", "line"]),
        ("conv/1/inferd.sig", lambda b: b"", ["inferd.sig"]),
        ("conv/1/inferd.sig", lambda b: (signed / "other/1/inferd.sig").read_bytes(), ["inferd.sig", 'model "other"']),
    ]
    for path, change, names in cases:
        undo = spoil(path, change)
        refused(signed, names, *keys.signed)  # also where a signature is not required: there is one
        undo()
    # a signed configuration that is gone, another one before it, one where there was none
    config = signed / "conv/model.yaml"
    config.rename(signed / "conv/config.pbtxt")
    refused(signed, ["model.yaml", "was signed"], *strict)
    (signed / "conv/config.pbtxt").unlink()
    refused(signed, ["model.yaml", "was signed"], *strict)
    config.write_text("max_batch_size: 4\n")
    (signed / "other/model.yaml").write_text("max_batch_size: 1\n")
    refused(signed, ["model.yaml", "not covered"], *strict)
    (signed / "other/model.yaml").unlink()
    assert check(signed, *strict).returncode == 0
    (signed / "conv/1/inferd.sig").unlink()
    refused(signed, ["inferd.sig", "require_signature"], *strict)
    assert check(signed, *keys.signed).returncode == 0
    onnx = tmp_path / "onnx"
    weights = copy_model("external", onnx) / "data/weights.bin"
    inferd("sign", "models", "--key", keys.signer, onnx)
    assert check(onnx, *strict).returncode == 0
    weights.write_bytes(weights.read_bytes()[::-1])
    refused(onnx, ["data/weights.bin", "not the file that was signed"], *strict)
    other = Keys(tmp_path)
    refused(signed, ["inferd.sig", "models.signature_keys"], *other.signed)
    refused(signed, ["models.signature_keys"], "--models.require_signature")
    refused(signed, ["adapter"], *strict, f"--llm.adapter_path={tmp_path}")


def test_an_optional_file_of_a_signed_folder_can_not_be_taken_away(tmp_path, keys):
    shutil.copytree(LLM / "qwen2", tmp_path / "m/words/1")
    inferd("sign", "models", "--key", keys.signer, tmp_path / "m")
    args = [*keys.signed, "--models.require_signature"]
    assert check(tmp_path / "m", *args).returncode == 0
    for name in ("tokenizer_config.json", "generation_config.json", "model.safetensors"):
        path = tmp_path / "m/words/1" / name
        if path.exists():
            path.rename(tmp_path / name)
            refused(tmp_path / "m", [name, "was signed"], *args)
            (tmp_path / name).rename(path)
    (tmp_path / "m/words/1/modules.json").write_text("[]")  # one that would change the model, had it been signed
    refused(tmp_path / "m", ["modules.json", "not covered"], *args)


def test_python_signs_and_openssl_makes_keys(tmp_path, keys):
    """The other direction: a key pair and a signature that inferd had no hand in; sealed and signed together."""
    root = tmp_path / "m"
    version = write_fake(root, "echo", "input = X FP32 [-1,2]\noutput = Y FP32 [-1,2] copy X\n")
    sealed = seal((version / "model.fake").read_bytes(), keys.key)
    (version / "model.fake").write_bytes(sealed)
    private = Ed25519PrivateKey.generate()
    public = private.public_key()
    (tmp_path / "p.pem").write_bytes(public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
    raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    body = f"inferd-signature 1\nmodel echo\nversion 1\nfile {hashlib.sha256(sealed).hexdigest()} {len(sealed)} model.fake\n"
    ident = hashlib.sha256(b"inferd sign key" + raw).digest()[:8].hex()
    (version / "inferd.sig").write_text(body + f"signature {ident} {private.sign(body.encode()).hex()}\n")
    args = [*keys.sealed, f"--models.signature_keys={tmp_path / 'p.pem'}", "--models.require_signature", "--models.require_sealed"]
    with Server(root, args=args) as s:
        body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
        assert s.infer("echo", body).json()["outputs"][0]["data"] == [1, 2]
        assert s.wait_records("model_signature_good")[0]["key"] == ident
    # an external file that the list lacks is not read, whatever it holds
    (version / "model.fake").write_bytes(seal(b"input = X FP32 [-1,3]\noutput = Y FP32 [-1,3] copy X\n", keys.key))
    refused(root, ["model.fake", "not the file that was signed"], *args)


def test_a_config_in_the_load_request_is_not_signed(signed, keys):
    with Server(signed, args=[*keys.signed, "--models.require_signature", "--repository.mode=explicit"], wait="start") as s:
        load = f"{s.url}/v2/repository/models/conv/load"
        answer = requests.post(load, json={"parameters": {"config": '{"max_batch_size": 2}'}})
        assert answer.status_code >= 400 and "signed" in answer.text
        assert requests.post(load).status_code == 200
