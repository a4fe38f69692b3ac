"""ONNX files that others wrote and PyPI packages ship, with their trained weights.

`pip install --no-deps silero-vad magika rapidocr-onnxruntime basic-pitch`. Of each package only the file is read.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from edgekit.model.overrides import words_of
from edgekit.model.sources.onnx import spec_of_onnx
from edgekit.model.spec import Array, ModelSpec
from tools.exam.pictures import evaluation
from tools.zoo.samples import ROWS, TRUTH, Samples, of, sounds

LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz     ", np.uint8)
PADDING = 256
"""What magika takes behind the last byte."""


def silero() -> ModelSpec:
    """Silero's detector of voices: 36 ms of sound, the state and the rate -> a probability and the next state."""

    def samples(count: int, seed: int) -> dict[str, Array]:
        state = 0.3 * np.random.default_rng(seed).normal(size=(2 * count, 1, 128))
        rate = np.full(count, 16000)
        return sounds("input", (576,))(count, seed) | {"state": state.clip(-1, 1).astype(np.float32), "sr": rate}

    axes = ("input:0=batch,1=sound:576..576", "state:1=batch")
    inputs = ("input:range=-1..1", "state:range=-1..1", "sr:range=16000..16000")
    outputs = ("stateN:role=state",)
    return _file("silero", "silero_vad", "data/silero_vad_16k_op15.onnx", samples, axes, inputs, outputs)


def magika() -> ModelSpec:
    """Magika: the first and the last 1,024 bytes of a file -> which of 214 kinds it is."""

    def samples(count: int, seed: int) -> dict[str, Array]:
        draw = np.random.default_rng(seed)
        found = np.full((count, 2048), PADDING, np.int32)
        for number, row in enumerate(found):
            size = int(draw.integers(200, 1024))
            kinds = (
                draw.choice(LETTERS, size),
                np.frombuffer((b"%d,%d\n" % (*draw.integers(0, 10**6, 2),)) * 200, np.uint8)[:size],
                draw.integers(0, 256, size),
                np.frombuffer(b"<p>%s</p>\n" % draw.choice(LETTERS, 30).tobytes() * 50, np.uint8)[:size],
                np.frombuffer(b"def f(%c):\n    return %d\n" % (97 + number % 26, size) * 60, np.uint8)[:size],
            )
            row[:size] = row[-size:] = kinds[number % len(kinds)]
        return {"bytes": found}

    outputs = ("target_label:role=probabilities",)
    return _file("magika", "magika", "models/standard_v3_3/model.onnx", samples, (), ("bytes:range=0..256",), outputs)


def text_angle() -> ModelSpec:
    """PaddleOCR's classifier of lines: upright or upside down."""
    path, axes = "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", ("x:0=batch,2=height:48..48,3=width:192..192",)
    outputs = ("save_infer_model_scale_0.tmp_1:role=probabilities",)
    picture = ("x:kind=image,mean=0.5,std=0.5",)
    return _file("text-angle", "rapidocr_onnxruntime", path, partial(_lines, 48, 192), axes, picture, outputs)


def text_finder() -> ModelSpec:
    """PaddleOCR's finder of lines: a picture of any size -> where text is."""
    path, axes = "models/ch_PP-OCRv4_det_infer.onnx", ("x:0=batch,2=height:64..128/32@96,3=width:64..128/32@96",)
    picture = ("x:kind=image,mean=0.485,0.456,0.406,std=0.229,0.224,0.225",)
    outputs = ("sigmoid_0.tmp_0:role=mask",)
    return _file("text-finder", "rapidocr_onnxruntime", path, partial(_lines, 96, 96), axes, picture, outputs)


def notes() -> ModelSpec:
    """Basic Pitch: two seconds of sound -> which notes begin and sound, and their pitch."""
    name = "serving_default_input_2_0"

    def samples(count: int, seed: int) -> dict[str, Array]:
        (made,) = sounds(name, (43844,))(count, seed).values()
        return {name: made[:, :, None]}

    path = "saved_models/icassp_2022/nmp.onnx"
    return _file("notes", "basic_pitch", path, samples, (), (f"{name}:range=-1..1",), ())


def _file(
    name: str,
    package: str,
    path: str,
    samples: Samples,
    axes: Sequence[str],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> ModelSpec:
    home = importlib.util.find_spec(package)
    if home is None or not home.submodule_search_locations:
        raise ModuleNotFoundError(f"needs '{package}': pip install --no-deps {package.replace('_', '-')}")
    file = Path(home.submodule_search_locations[0]) / path
    spec = spec_of_onnx(file, words_of(axes, inputs, outputs))
    judged, calibration = (lambda: evaluation(samples(ROWS, TRUTH))), (lambda count: of(samples, count))
    return replace(spec, name=name, evaluation=judged, calibration=calibration)


def _lines(height: int, width: int, count: int, seed: int) -> dict[str, Array]:
    """Pictures with a line of text each, every other one upside down, float32 [count, 3, height, width] in 0 to 1."""
    draw = np.random.default_rng(seed)
    made = np.empty((count, 3, height, width), np.float32)
    for number in range(count):
        canvas = Image.new("RGB", (width, height), tuple(int(x) for x in draw.integers(170, 256, 3)))
        line = draw.choice(LETTERS[:26], 12).tobytes().decode()
        place = (int(draw.integers(2, width // 4)), int(draw.integers(2, max(height - 26, 3))))
        dark = tuple(int(x) for x in draw.integers(0, 90, 3))
        ImageDraw.Draw(canvas).text(place, line, fill=dark, font_size=int(draw.integers(16, 24)))
        turned = canvas.rotate(180 * (number % 2))
        made[number] = np.asarray(turned, np.float32).transpose(2, 0, 1) / 255
    return {"x": made}
