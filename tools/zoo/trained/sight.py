"""Trained networks of pictures: text on rendered lines, faces of a package, and digits that are learnt here."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from torch import Tensor, nn

from edgekit.metrics import top_k
from edgekit.model.overrides import words_of
from edgekit.model.sources.onnx import read_graph, spec_of_onnx
from edgekit.model.spec import Array, Axis, EvaluationSet, Input, Metric, ModelSpec, Output
from tools.zoo import shipped
from tools.zoo.shipped import home_of
from tools.zoo.trained.keep import keep_weights
from tools.zoo.trained.sentences import CALIBRATION, HELD_OUT, sentences

FONTS = Path("/usr/share/fonts/truetype")
"""Of Debian's fonts-dejavu-core and fonts-liberation."""
LINE, WIDTH = 48, 320
"""Size of a line of text, in pixels."""
PAGE = 320
"""Side of a picture with several lines."""
INSIDE, GROWN, OVERLAP = 0.3, 1.6, 0.5
"""PP-OCR's threshold of its map, how far its boxes grow, and the least overlap of a right one."""
FACE, DIGIT = 24, 32
FACES, NOISE = 100, 0.05
"""Faces at the start of the package's set; as many other pictures follow. The noise that is added to them."""
STEPS, ROWS, RATE = 400, 32, 3e-3
"""Of the training of the classifier of digits."""


def text_reader() -> ModelSpec:
    """Return PP-OCRv4's recogniser on rendered lines; the truth is their letters."""
    path = home_of("rapidocr_onnxruntime") / "models/ch_PP-OCRv4_rec_infer.onnx"
    stored = next(p.value for p in read_graph(path).metadata_props if p.key == "character")
    letters = ("", *stored.splitlines(), " ")
    axes = (f"x:0=batch,2=height:{LINE}..{LINE},3=width:{WIDTH}..{WIDTH}",)
    spec = spec_of_onnx(
        path, words_of(axes, ("x:kind=image,mean=0.5,std=0.5",), (f"{_only(path)}:role=probabilities",))
    )
    return replace(
        spec,
        name="text-reader",
        evaluation=lambda: _lines(HELD_OUT, 48, _letters_right(spec.outputs[0].name, letters)),
        calibration=lambda count: _lines(CALIBRATION, count, None),
    )


def text_finder() -> ModelSpec:
    """Return PP-OCRv4's detector on pictures with lines of text; the truth is their boxes."""
    path = home_of("rapidocr_onnxruntime") / "models/ch_PP-OCRv4_det_infer.onnx"
    axes = (f"x:0=batch,2=height:{PAGE}..{PAGE},3=width:{PAGE}..{PAGE}",)
    picture = ("x:kind=image,mean=0.485,0.456,0.406,std=0.229,0.224,0.225",)
    spec = spec_of_onnx(path, words_of(axes, picture, (f"{_only(path)}:role=mask",)))
    return replace(
        spec,
        name="text-finder",
        evaluation=lambda: _pages(HELD_OUT, 40, _boxes_right(spec.outputs[0].name)),
        calibration=lambda count: _pages(CALIBRATION, count, None),
    )


def text_angle() -> ModelSpec:
    """Return PP-OCR's classifier of upright and turned lines."""
    path = home_of("rapidocr_onnxruntime") / "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"
    axes = ("x:0=batch,2=height:48..48,3=width:192..192",)
    spec = spec_of_onnx(
        path, words_of(axes, ("x:kind=image,mean=0.5,std=0.5",), (f"{_only(path)}:role=probabilities",))
    )

    def turned(part: str, count: int) -> EvaluationSet:
        lines = _lines(part, count, None, width=192)
        truth = np.arange(count) % 2
        pictures = np.where(truth[:, None, None, None], lines.inputs["x"][:, :, ::-1, ::-1], lines.inputs["x"])
        metric = top_k(spec.outputs[0].name)
        return EvaluationSet({"x": np.ascontiguousarray(pictures)}, lines.names, (), truth, metric, "upright or turned")

    bare = functools.partial(replace, truth=None, metric=None)
    return replace(
        spec,
        name="text-angle",
        evaluation=lambda: turned(HELD_OUT, 200),
        calibration=lambda count: bare(turned(CALIBRATION, count)),
    )


def faces() -> ModelSpec:
    """Return MTCNN's second net on scikit-image's faces and other pictures; the truth is which is a face."""
    spec = shipped.rnet()
    return replace(
        spec, axes={"batch": Axis(1, 1, 3)}, evaluation=lambda: _faces(0, 100), calibration=lambda n: _faces(1, n)
    )


def digits() -> ModelSpec:
    """Return a small MobileNetV2 that is trained here on scikit-learn's handwritten digits."""
    return ModelSpec(
        name="digits",
        module=keep_weights("digits", Digits(), train),
        inputs=(Input("images", ("batch", 1, DIGIT, DIGIT)),),
        outputs=(Output("logits", role="logits"),),
        axes={"batch": Axis(1, 1, 3)},
        evaluation=lambda: _digits(0, 400),
        calibration=lambda count: replace(_digits(400, count), truth=None, metric=None),
    )


class Digits(nn.Module):
    """Inverted bottlenecks with depthwise convolutions and residuals: [n, 1, 32, 32] -> logits [n, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
        widths, strides = (16, 24, 24, 40, 40, 64, 64), (1, 2, 1, 2, 1, 2, 1)
        before = (16, *widths[:-1])
        self.blocks = nn.ModuleList(_Bottleneck(*shape) for shape in zip(before, widths, strides, strict=True))
        self.head = nn.Sequential(nn.Conv2d(64, 256, 1, bias=False), nn.BatchNorm2d(256), nn.ReLU6())
        self.classifier = nn.Linear(256, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        return torch.as_tensor(self.classifier(self.head(x).mean((2, 3))))


class _Bottleneck(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        wide = 4 * before
        self.residual = before == width and stride == 1
        self.layers = nn.Sequential(
            *(nn.Conv2d(before, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()),
            *(nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()),
            *(nn.Conv2d(wide, width, 1, bias=False), nn.BatchNorm2d(width)),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return torch.as_tensor(x + y if self.residual else y)


def train(module: nn.Module, steps: int = STEPS) -> None:
    """Train on the digits behind the held-out ones, shifted and with noise."""
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    part = _digits(400, 1397)
    images, labels = part.inputs["images"], np.asarray(part.truth)
    optimizer = torch.optim.AdamW(module.parameters(), RATE, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps)
    module.train()
    for _ in range(steps):
        rows = draw.integers(0, len(images), ROWS)
        shift = tuple(int(size) for size in draw.integers(-3, 4, 2))
        batch = np.roll(images[rows], shift, (2, 3)) + draw.normal(0, 0.05, (ROWS, 1, DIGIT, DIGIT))
        logits = module(torch.from_numpy(batch.astype(np.float32)))
        loss = nn.functional.cross_entropy(logits, torch.from_numpy(labels[rows]))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()


def _digits(first: int, count: int) -> EvaluationSet:
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    every = load_digits()
    order = np.random.default_rng(3).permutation(len(every.target))[first : first + count]
    small = torch.from_numpy(every.images[order].astype(np.float32) / 16.0)[:, None]
    images = nn.functional.interpolate(small, size=(DIGIT, DIGIT), mode="bilinear").numpy()
    names = tuple(f"digit {row}" for row in order)
    return EvaluationSet({"images": images}, names, (), every.target[order], top_k("logits"), "top-1")


def _faces(part: int, count: int) -> EvaluationSet:
    """Return every other picture of the package's set, in turn a face and none; a third hundred is mirrored."""
    whole = np.load(home_of("skimage") / "data/lfw_subset.npy")
    numbers = np.arange(part, FACES, 2)
    rows = np.stack([numbers, numbers + FACES], 1).reshape(-1)
    rows = np.resize(rows, count)
    gray = whole[rows][:, :FACE, :FACE].astype(np.float32)
    mirrored = np.where((np.arange(count) >= len(numbers) * 2)[:, None, None], gray[:, :, ::-1], gray)
    noisy = mirrored + np.random.default_rng(part).normal(0, NOISE, mirrored.shape)
    images = np.repeat(noisy.clip(0, 1).astype(np.float32)[:, None], 3, 1)
    truth = (rows < FACES).astype(np.int64)
    names = tuple(f"picture {row}" for row in rows)
    sets = EvaluationSet({"images": np.ascontiguousarray(images)}, names, (), truth, top_k("face"), "face or not")
    return sets if part == 0 else replace(sets, truth=None, metric=None)


def _only(path: Path) -> str:
    """Return the name that the output of a file has in edgekit."""
    from edgekit.model.sources.onnx import tensor_name

    return tensor_name(read_graph(path).graph.output[0].name)


def _lines(part: str, count: int, metric: Metric | None, width: int = WIDTH) -> EvaluationSet:
    """Return pictures [count, 3, LINE, width] of a few words each, small, tilted, blurred, in noise."""
    draw, texts = np.random.default_rng(len(part)), sentences(part)
    fonts = sorted(FONTS.rglob("*.ttf"))
    pictures, truth = np.empty((count, 3, LINE, width), np.float32), []
    for number in range(count):
        text = " ".join(texts[number % len(texts)].split()[: 2 + number % 2])[:20]
        dark, light = draw.integers(0, 110, 3), draw.integers(130, 256, 3)
        canvas = Image.new("RGB", (width, LINE), tuple(int(x) for x in light))
        font = _fitting(fonts[int(draw.integers(len(fonts)))], text, width - 24, int(draw.integers(18, 32)))
        place = (int(draw.integers(3, 12)), int(draw.integers(2, 12)))
        ImageDraw.Draw(canvas).text(place, text, tuple(int(x) for x in dark), font)
        canvas = canvas.rotate(draw.uniform(-2, 2), Image.Resampling.BILINEAR, fillcolor=tuple(int(x) for x in light))
        canvas = canvas.filter(ImageFilter.GaussianBlur(draw.uniform(0, 1.0)))
        noise = draw.normal(0, draw.uniform(0, 0.06), (LINE, width, 3))
        pictures[number] = (np.asarray(canvas, np.float32) / 255 + noise).clip(0, 1).transpose(2, 0, 1)
        truth.append([ord(letter) for letter in text.ljust(20)])
    names = tuple(f"line {number}" for number in range(count))
    if metric is None:
        return EvaluationSet({"x": pictures}, names)
    return EvaluationSet({"x": pictures}, names, (), np.array(truth), metric, "characters")


def _pages(part: str, count: int, metric: Metric | None) -> EvaluationSet:
    """Return pictures [count, 3, PAGE, PAGE] with three to five lines; the truth is boxes, -1 where there are fewer."""
    draw, texts = np.random.default_rng(len(part) + 1), sentences(part)
    fonts = sorted(FONTS.rglob("*.ttf"))
    pictures, truth = np.empty((count, 3, PAGE, PAGE), np.float32), np.full((count, 5, 4), -1.0)
    for number in range(count):
        light, dark = (tuple(int(x) for x in draw.integers(*ends, 3)) for ends in ((150, 256), (0, 100)))
        canvas = Image.new("RGB", (PAGE, PAGE), light)
        pen, lines = ImageDraw.Draw(canvas), int(draw.integers(3, 6))
        for line in range(lines):
            text = " ".join(texts[(7 * number + line) % len(texts)].split()[:2])[:16]
            font = _fitting(fonts[int(draw.integers(len(fonts)))], text, PAGE // 2, int(draw.integers(14, 26)))
            place = (int(draw.integers(8, PAGE // 2 - 10)), 12 + line * (PAGE - 20) // lines + int(draw.integers(0, 8)))
            pen.text(place, text, dark, font)
            truth[number, line] = pen.textbbox(place, text, font)
        canvas = canvas.filter(ImageFilter.GaussianBlur(draw.uniform(0, 1.2)))
        noise = draw.normal(0, draw.uniform(0, 0.1), (PAGE, PAGE, 3))
        pictures[number] = (np.asarray(canvas, np.float32) / 255 + noise).clip(0, 1).transpose(2, 0, 1)
    names = tuple(f"page {number}" for number in range(count))
    if metric is None:
        return EvaluationSet({"x": pictures}, names)
    return EvaluationSet({"x": pictures}, names, (), truth, metric, "boxes, F1")


def _fitting(path: Path, text: str, width: int, size: int) -> ImageFont.FreeTypeFont:
    """Return a font in the largest size up to `size` in which a text fits into a width."""
    while size > 9 and ImageFont.truetype(path, size).getlength(text) > width:
        size -= 1
    return ImageFont.truetype(path, size)


def _letters_right(output: str, letters: Sequence[str]) -> Metric:
    """Return a metric of 1 - the edit distance between a line and its truth, as a share of the truth's length."""

    def metric(outputs: Mapping[str, Array], truth: Array) -> Array:
        shares = []
        for steps, row in zip(outputs[output].argmax(2), truth, strict=True):
            first = np.flatnonzero(np.diff(steps, prepend=-1))
            text = "".join(letters[number] for number in steps[first] if number)
            right = "".join(chr(int(code)) for code in row).strip()
            shares.append(1.0 - min(_edits(text.strip(), right) / len(right), 1.0))
        return np.array(shares)

    return metric


def _edits(one: str, other: str) -> int:
    """Return Levenshtein's distance."""
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        before, row[0] = row[0], number
        for column, character in enumerate(other, 1):
            before, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, before + (letter != character))
    return row[-1]


def _boxes_right(output: str) -> Metric:
    """Return a metric of each picture's F1 of boxes that overlap a line by OVERLAP or more."""
    from scipy import ndimage

    def metric(outputs: Mapping[str, Array], truth: Array) -> Array:
        shares = []
        for mask, rows in zip(outputs[output], truth, strict=True):
            labels, _ = ndimage.label(mask.reshape(PAGE, PAGE) > INSIDE)
            boxes = []
            for down, across in ndimage.find_objects(labels):
                height, width = down.stop - down.start, across.stop - across.start
                if min(height, width) >= 3:
                    # As far as PP-OCR's unclipping moves a rectangle's sides.
                    grow = height * width * GROWN / (2 * (height + width))
                    boxes.append((across.start - grow, down.start - grow, across.stop + grow, down.stop + grow))
            right = rows[rows[:, 2] > 0]
            hits = sum(max((_overlap(box, line) for box in boxes), default=0.0) >= OVERLAP for line in right)
            shares.append(2.0 * hits / max(len(boxes) + len(right), 1))
        return np.array(shares)

    return metric


def _overlap(one: Sequence[float], other: Sequence[float]) -> float:
    width, height = (max(min(one[n + 2], other[n + 2]) - max(one[n], other[n]), 0.0) for n in (0, 1))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return width * height / (sum(areas) - width * height)
