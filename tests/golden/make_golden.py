"""Make the golden vectors that Python, TypeScript, Kotlin and Swift share, from the definitions in README.md.

    python tests/golden/make_golden.py

The definitions are written out here in plain NumPy once more, so that a library is never tested against itself.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]

Rectangle = tuple[int, int, int, int]

HERE = Path(__file__).parent
FORMAT = 1
BORDER = 114
WORDS = ("red", "blue", "purple", "violet", "circle", "circles", "star", "small", "large", "striped", "object", "the")
ROWS = (4, 1, 2, 2, 0, 0, 3, 5, 6, 7, 8, 9)
DIM = 24

TEXTS = (
    "red circle",
    "  RED,  circle!! ",
    "red red blue",
    "Purple-Star",
    "large striped star",
    "star, object",
    "blue\n\tcircles",
    "the star & the circle / SMALL",
)
REFUSED = ("", " ,.! ", "unicorn", "x y z", "large striped unicorn", "star's object", "not red", "red, but not blue")


class Binary:
    """A file of arrays, each at a multiple of four bytes."""

    def __init__(self) -> None:
        self.data = bytearray()

    def part(self, array: Array) -> dict[str, object]:
        where = {"offset": len(self.data), "shape": list(array.shape)}
        self.data.extend(np.ascontiguousarray(array).tobytes())
        self.data.extend(b"\0" * (-len(self.data) % 4))
        return where


def query_encoding() -> dict[str, bytes]:
    draw = np.random.Generator(np.random.PCG64(1))
    # Odd multiples of 1/256, so that sums are exact in float32 in whatever order.
    stored = draw.integers(-128, 128, (max(ROWS) + 1, DIM)).astype("i1")
    table = (2 * stored.astype(np.float64) + 1) / 256
    binary = Binary()
    cases = []
    for text in (*TEXTS, *REFUSED):
        words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
        known = [w for w in words if w in WORDS]
        case: dict[str, object] = {"text": text, "known": known, "unknown": [w for w in words if w not in WORDS]}
        if known and not case["unknown"]:
            rows = table[[ROWS[WORDS.index(w)] for w in known]]
            case["vector"] = binary.part(rows.mean(0).astype("<f4"))
        cases.append(case)
    top = {
        "format": FORMAT,
        "vocabulary": "vocabulary.json",
        "embeddings": "embeddings.bin",
        "binary": "query_encoding.bin",
        "tolerance": 1e-6,
        "cases": cases,
    }
    return {
        "vocabulary.json": dump({"dim": DIM, "scale": 2 / 256, "offset": 1 / 256, "words": WORDS, "rows": ROWS}),
        "embeddings.bin": stored.tobytes(),
        "query_encoding.json": dump(top),
        "query_encoding.bin": bytes(binary.data),
    }


def preprocessing() -> dict[str, bytes]:
    binary = Binary()
    cases = []
    for name, pixels, size, low, high, fit in pictures():
        rgb = on_white(pixels)
        part, place = fitted(rgb.shape[0], rgb.shape[1], *size, fit)
        scaled = np.full((*size, 3), BORDER, np.uint8)
        cut = rgb[part[0] : part[0] + part[2], part[1] : part[1] + part[3]]
        inside = cut if cut.shape[:2] == place[2:] else resized(cut, *place[2:])
        scaled[place[0] : place[0] + place[2], place[1] : place[1] + place[3]] = inside
        tensor = (low + (high - low) * scaled.astype(np.float64) / 255).transpose(2, 0, 1).astype("<f4")
        cases.append(
            {
                "name": name,
                "pixels": binary.part(pixels),
                "size": list(size),
                "low": low,
                "high": high,
                "fit": fit,
                "part": list(part),
                "place": list(place),
                "rgb": binary.part(scaled),
                "tensor": binary.part(tensor),
            }
        )
    top = {"format": FORMAT, "binary": "preprocessing.bin", "tolerance": 1e-6, "cases": cases}
    return {"preprocessing.json": dump(top), "preprocessing.bin": bytes(binary.data)}


def fitted(high: int, wide: int, height: int, width: int, fit: str) -> tuple[Rectangle, Rectangle]:
    """Which part of a picture fills which part of the model's size: each top, left, height, width."""

    def nearest(number: float) -> int:
        return max(1, math.floor(number + 0.5))

    part, place = (high, wide), (height, width)
    if fit == "crop":
        part = (
            (high, nearest(high * width / height))
            if wide / high > width / height
            else (nearest(wide * height / width), wide)
        )
    if fit == "letterbox":
        place = (
            (nearest(width * high / wide), width)
            if wide / high > width / height
            else (height, nearest(height * wide / high))
        )
    return ((high - part[0]) // 2, (wide - part[1]) // 2, *part), (
        (height - place[0]) // 2,
        (width - place[1]) // 2,
        *place,
    )


def pictures() -> list[tuple[str, npt.NDArray[np.uint8], tuple[int, int], float, float, str]]:
    """Name, RGBA bytes [h, w, 4] (not premultiplied), the model's size (height, width), low, high, fit."""
    draw = np.random.Generator(np.random.PCG64(2))

    def noise(height: int, width: int) -> npt.NDArray[np.uint8]:
        pixels = draw.integers(0, 256, (height, width, 4), dtype=np.uint8)
        pixels[..., 3] = 255
        return pixels

    corners = np.zeros((2, 3, 4), np.uint8)
    corners[..., 3] = 255
    corners[0, 0, 0] = corners[0, 2, 1] = corners[1, 0, 2] = 255  # red, green and blue tell planes and rows apart
    glass = noise(4, 4)
    glass[..., 3] = [[0, 1, 64, 127], [128, 200, 254, 255], [0, 255, 0, 255], [85, 170, 33, 99]]
    ramp = np.full((4, 64, 4), 255, np.uint8)
    ramp[..., :3] = np.arange(256, dtype=np.uint8).reshape(4, 64, 1)
    return [
        ("corners as they are", corners, (2, 3), 0.0, 1.0, "stretch"),
        ("every byte, 0 to 1", ramp, (4, 64), 0.0, 1.0, "stretch"),
        ("every byte, -1 to 1", ramp, (4, 64), -1.0, 1.0, "stretch"),
        ("transparent on white", glass, (4, 4), 0.0, 1.0, "stretch"),
        ("half the size", noise(8, 12), (4, 6), 0.0, 1.0, "stretch"),
        ("a third, uneven", noise(13, 10), (4, 3), 0.0, 1.0, "stretch"),
        ("larger", corners, (5, 9), 0.0, 1.0, "stretch"),
        ("wider and lower", noise(9, 4), (3, 11), 0.0, 1.0, "stretch"),
        ("one pixel", noise(1, 1), (3, 3), 0.0, 1.0, "stretch"),
        ("the middle of a wide one", noise(6, 17), (6, 6), 0.0, 1.0, "crop"),
        ("the middle of a high one, smaller", noise(21, 8), (4, 5), 0.0, 1.0, "crop"),
        ("nothing to crop", noise(4, 6), (8, 12), 0.0, 1.0, "crop"),
        ("borders above and below", noise(5, 12), (9, 9), 0.0, 1.0, "letterbox"),
        ("borders beside, larger", noise(7, 3), (10, 8), -1.0, 1.0, "letterbox"),
        ("no borders", noise(4, 6), (2, 3), 0.0, 1.0, "letterbox"),
    ]


def on_white(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """RGBA -> RGB: `floor((value * alpha + 255 * (255 - alpha)) / 255 + 0.5)`."""
    value, alpha = pixels[..., :3].astype(np.int64), pixels[..., 3:].astype(np.int64)
    return np.floor((value * alpha + 255 * (255 - alpha)) / 255 + 0.5).astype(np.uint8)


def resized(rgb: npt.NDArray[np.uint8], height: int, width: int) -> npt.NDArray[np.uint8]:
    """Triangle filter, widened where it shrinks; rows first, then columns; rounded once."""
    down = weights(rgb.shape[0], height) @ rgb.astype(np.float64).reshape(rgb.shape[0], -1)
    down = down.reshape(height, rgb.shape[1], 3)
    across = np.einsum("ow,hwc->hoc", weights(rgb.shape[1], width), down)
    rounded: npt.NDArray[np.uint8] = np.floor(across + 0.5).clip(0, 255).astype(np.uint8)
    return rounded


def weights(size: int, wanted: int) -> npt.NDArray[np.float64]:
    """[wanted, size]: what each old pixel counts for each new one."""
    scale = size / wanted
    reach = max(scale, 1.0)
    centres = (np.arange(wanted) + 0.5) * scale
    distance = np.abs(np.arange(size)[None, :] + 0.5 - centres[:, None]) / reach
    made = np.clip(1 - distance, 0, None)
    normal: npt.NDArray[np.float64] = made / made.sum(1, keepdims=True)
    return normal


def dump(value: object) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


INDEX: dict[str, object] = {
    "schema_version": 1,
    "rule": "pad",
    "weights": "weights.bin",
    "inputs": {"images": [None, None, "height", "width"], "query": [None, None]},
    "outputs": {
        "relevance": [None, {"axes": ["height", "width"], "steps": [2, 2]}],
        "mask": [None, {"axes": ["height"], "steps": [1]}, {"axes": ["width"], "steps": [1]}],
        "score": [None, None],
    },
    "buckets": [
        {"file": "4x4.onnx", "sizes": {"height": 4, "width": 4}},
        {"file": "4x8.onnx", "sizes": {"height": 4, "width": 8}},
        {"file": "8x4.onnx", "sizes": {"height": 8, "width": 4}},
        {"file": "6x6.onnx", "sizes": {"height": 6, "width": 6}},
    ],
}
ASKED = (
    (4, 4),
    (2, 2),
    (3, 4),
    (4, 5),
    (5, 4),
    (5, 5),
    (4, 8),
    (8, 4),
    (6, 6),
    (8, 8),
    (12, 3),
    (3, 12),
    (7, 9),
    (9, 7),
)
SMALLER = ((4, 4), (2, 2), (2, 4), (4, 6), (6, 2), (6, 6))


def buckets() -> dict[str, bytes]:
    """What the picker of `onnx-buckets` chooses, how it pads a picture, and what it cuts of answers."""
    made = [(each["sizes"]["height"], each["sizes"]["width"]) for each in INDEX["buckets"]]  # type: ignore[attr-defined]
    cases: list[dict[str, object]] = []
    for height, width in ASKED:
        holding = [size for size in made if size[0] >= height and size[1] >= width]
        least = min(max(height / size[0], width / size[1]) for size in made)
        scaled = [size for size in made if max(height / size[0], width / size[1]) == least]
        best = min(holding, key=lambda size: size[0] * size[1]) if holding else scaled[0]
        cases.append({"sizes": {"height": height, "width": width}, "file": f"{best[0]}x{best[1]}.onnx"})
    fitted_cases: list[dict[str, object]] = []
    for height, width in SMALLER:
        high, wide = next(size for size in sorted(made, key=math.prod) if size[0] >= height and size[1] >= width)
        picture = np.arange(height * width).reshape(height, width)
        padded = np.pad(picture, ((0, high - height), (0, wide - width)), mode="edge")
        patches = np.arange(high * wide // 4).reshape(high // 2, wide // 2)
        mask = np.arange(high * wide).reshape(high, wide)
        fitted_cases.append(
            {
                "sizes": {"height": height, "width": width},
                "file": f"{high}x{wide}.onnx",
                "images": {"shape": [1, 1, height, width], "values": picture.ravel().tolist()},
                "padded": {"shape": [1, 1, high, wide], "values": padded.ravel().tolist()},
                "query": {"shape": [1, 3], "values": [7, 8, 9]},
                "answers": {
                    "relevance": {"shape": [1, patches.size], "values": patches.ravel().tolist()},
                    "mask": {"shape": [1, high, wide], "values": mask.ravel().tolist()},
                    "score": {"shape": [1, 2], "values": [1, 2]},
                },
                "cut": {
                    "relevance": patches[: height // 2, : width // 2].ravel().tolist(),
                    "mask": mask[:height, :width].ravel().tolist(),
                    "score": [1, 2],
                },
            }
        )
    return {"buckets.json": dump({"format": FORMAT, "index": INDEX, "chosen": cases, "fitted": fitted_cases})}


def files() -> dict[str, bytes]:
    """All golden files by name."""
    return {**query_encoding(), **preprocessing(), **buckets()}


if __name__ == "__main__":
    for name, content in files().items():
        (HERE / name).write_bytes(content)
