"""compose.py: the trained networks as models that take a file and answer in words.

A client of the plain network has to decode, resize and normalise by itself and to turn scores back into words. Here
the same steps stand in the model's own graph, so that `curl --data-binary @file` is a whole client:

    read_text    a BMP picture of one line of text (24 bits a pixel)   -> the text
    find_speech  a WAV sound (16 kHz, mono, 16 bits)                   -> where somebody speaks
    file_type    the bytes of any file                                 -> what kind of file it is

The steps are those of the packages the networks come from: PP-OCR's recogniser (height 48, BGR, (x/255 - 0.5)/0.5, CTC
decoding), Silero's 512-sample windows with 64 samples of context, Magika's first and last 1024 bytes without outer blanks.
"""
import numpy as np
import onnx
from onnx import helper

from graph import BOOL, FLOAT, INT64, STRING, UINT8, Graph


def read_text(network):
    g = Graph()
    # A BMP header: where the pixels start, width, height; rows are padded to 4 bytes and stored bottom up, as B, G, R.
    start, width, height = (g.number_at("picture", at, 4) for at in (10, 18, 22))
    row_bytes = g.op("Mul", g.op("Div", g.op("Add", g.op("Mul", width, [3]), [3]), [4]), [4])
    end = g.op("Add", start, g.op("Mul", row_bytes, height))
    rows = g.op("Reshape", g.op("Slice", "picture", start, end, [0]), g.op("Concat", height, row_bytes, axis=0))
    rows = g.op("Slice", rows, [0], g.op("Mul", width, [3]), [1])
    rows = g.op("Slice", rows, [-1], [-(2**62)], [0], [-1])
    pixels = g.op("Reshape", rows, g.op("Concat", [1], height, width, [3], axis=0))
    pixels = g.op("Transpose", g.cast(pixels, FLOAT), perm=[0, 3, 1, 2])
    new_width = g.op("Div", g.op("Sub", g.op("Add", g.op("Mul", width, [48]), height), [1]), height)
    sizes = g.op("Concat", [1, 3, 48], new_width, axis=0)
    line = g.op("Resize", pixels, "", "", sizes, mode="linear", coordinate_transformation_mode="half_pixel")
    line = g.op("Sub", g.op("Div", line, np.float32([127.5])), np.float32([1.0]))
    # The recogniser was trained on lines of at least 320 columns, the rest of a shorter one filled with zeros.
    missing = g.op("Max", g.op("Sub", [320], new_width), [0])
    line = g.op("Pad", line, g.op("Concat", [0, 0, 0, 0, 0, 0, 0], missing, axis=0))
    scores = g.include(network, {network.graph.input[0].name: line})[0]  # [1, steps, characters]

    # CTC: the best character of each step, repeats and blanks (0) left out.
    characters = next(p.value for p in network.metadata_props if p.key == "character").split("\n")
    table = g.words("", *characters, " ")
    best = g.op("Squeeze", g.op("ArgMax", scores, axis=2, keepdims=0), [0])
    before = g.op("Concat", [0], g.op("Slice", best, [0], [-1], [0]), axis=0)
    keep = g.op("And", g.op("Not", g.op("Equal", best, before)), g.op("Not", g.op("Equal", best, [0])))
    letters = g.op("Gather", table, g.op("Compress", best, keep, axis=0))
    certain = g.op("Compress", g.op("ReduceMax", g.op("Squeeze", scores, [0]), [1], keepdims=0), keep, axis=0)
    count = g.cast(g.op("Max", g.length(certain, 0), [1]), FLOAT)  # a picture without text has confidence 0, not 0/0
    confidence = g.op("Div", g.op("ReduceSum", certain, [0], keepdims=1), count)
    return g.model([("picture", UINT8, ["bytes"])],
                   [("text", STRING, [1], concatenate(g, letters)), ("confidence", FLOAT, [1], confidence)],
                   "Reads one line of text from a 24-bit BMP picture (PP-OCRv4 recogniser).")


def concatenate(g, letters):
    """All strings of a vector in one, by a loop: ONNX has no reduction over strings."""
    body_nodes = [helper.make_node("Identity", ["go"], ["go_on"]),
                  helper.make_node("Gather", [letters, "i"], ["letter"]),
                  helper.make_node("StringConcat", ["so_far", "letter"], ["longer"])]
    body = helper.make_graph(body_nodes, "append", [helper.make_tensor_value_info("i", INT64, []),
                                                    helper.make_tensor_value_info("go", BOOL, []),
                                                    helper.make_tensor_value_info("so_far", STRING, [1])],
                             [helper.make_tensor_value_info("go_on", BOOL, []),
                              helper.make_tensor_value_info("longer", STRING, [1])])
    count = g.op("Squeeze", g.length(letters, 0), [0])
    return g.op("Loop", count, "", g.words(""), body=body)


def find_speech(network):
    g = Graph()
    # The samples after a 44-byte WAV header, two bytes each, as -1..1; whole windows of 512 only.
    data = g.op("Slice", "sound", [44], [2**62], [0])
    windows = g.op("Div", g.length(data, 0), [1024])
    data = g.op("Slice", data, [0], g.op("Mul", windows, [1024]), [0])
    pairs = g.cast(g.op("Reshape", data, [-1, 2]), INT64)
    value = g.op("ReduceSum", g.op("Mul", pairs, [1, 256]), [1], keepdims=0)
    value = g.op("Sub", value, g.op("Mul", g.op("Div", value, [32768]), [65536]))
    samples = g.op("Reshape", g.op("Div", g.cast(value, FLOAT), np.float32([32768])), [-1, 512])
    # Each window sees the last 64 samples of the one before.
    tails = g.op("Slice", g.op("Slice", samples, [448], [512], [1]), [0], [-1], [0])
    context = g.op("Concat", np.zeros((1, 64), np.float32), tails, axis=0)
    zero = np.zeros((1, 1, 128), np.float32)
    frames = g.op("Concat", context, samples, axis=1)
    speech = g.include(network, {"input": frames, "h": g.const(zero), "c": g.const(zero)})[0]  # [windows]

    heard = g.cast(g.op("GreaterOrEqual", speech, np.float32([0.5])), INT64)
    total = g.op("ReduceSum", heard, [0], keepdims=1)
    first = g.op("ArgMax", heard, axis=0, keepdims=1)
    last = g.op("Add", g.op("ArgMax", heard, axis=0, keepdims=1, select_last_index=1), [1])
    share = g.cast(g.op("Div", g.op("Mul", total, [100]), windows), STRING)
    found = g.join(g.words("speech from "), seconds(g, first), g.words(" s to "), seconds(g, last), g.words(" s ("), share,
                   g.words(" % of "), seconds(g, windows), g.words(" s)"))
    none = g.join(g.words("no speech in "), seconds(g, windows), g.words(" s"))
    answer = g.op("Where", g.op("Greater", total, [0]), found, none)
    return g.model([("sound", UINT8, ["bytes"])],
                   [("answer", STRING, [1], answer), ("top_probability", FLOAT, [1], g.op("ReduceMax", speech, [0], keepdims=1))],
                   "Says where somebody speaks in a 16 kHz mono 16-bit WAV file (Silero VAD).")


def seconds(g, windows):
    """A count of 32 ms windows as text in seconds, with one decimal."""
    tenths = g.op("Div", g.op("Add", g.op("Mul", windows, [32]), [50]), [100])
    whole = g.op("Div", tenths, [10])
    return g.join(g.cast(whole, STRING), g.words("."), g.cast(g.op("Sub", tenths, g.op("Mul", whole, [10])), STRING))


def file_type(network, labels):
    g = Graph()
    blanks = np.ones(256, np.int64)
    blanks[[9, 10, 11, 12, 13, 32]] = 0
    head = trimmed(g, g.op("Slice", "file", [0], [4096], [0]), blanks)
    head = g.op("Slice", g.op("Concat", head, np.full(1024, 256, np.int32), axis=0), [0], [1024], [0])
    backwards = g.op("Slice", "file", [-1], [-4097], [0], [-1])
    tail = trimmed(g, backwards, blanks)
    tail = g.op("Slice", g.op("Concat", tail, np.full(1024, 256, np.int32), axis=0), [0], [1024], [0])
    tail = g.op("Slice", tail, [-1], [-(2**62)], [0], [-1])
    tokens = g.op("Unsqueeze", g.op("Concat", head, tail, axis=0), [0])
    scores = g.include(network, {network.graph.input[0].name: tokens})[0]
    best = g.op("ArgMax", scores, axis=1, keepdims=0)
    return g.model([("file", UINT8, ["bytes"])],
                   [("type", STRING, [1], g.op("Gather", g.words(*labels), best)),
                    ("probability", FLOAT, [1], g.op("ReduceMax", scores, [1], keepdims=0))],
                   "Says what kind of file the bytes are (Magika).")


def trimmed(g, data, blanks):
    """The bytes, as int32, from the first one that is not a blank; none when all are."""
    solid = g.op("Concat", g.op("Gather", g.const(blanks), g.cast(data, INT64)), [1], axis=0)
    first = g.op("ArgMax", solid, axis=0, keepdims=1)
    return g.cast(g.op("Slice", data, first, [2**62], [0]), onnx.TensorProto.INT32)
