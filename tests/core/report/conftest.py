"""Builds as a real export leaves them, with synthetic scenes and maps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw
from safetensors.numpy import save, save_file

from edgekit.artifact.fact import Code, Fact, fact
from edgekit.artifact.manifest import BundleInfo, ExportInfo, Manifest, Source, TensorInfo, Variant
from edgekit.artifact.result import RESULT, EvaluationResult, Measure, Ratio, Result, Timing, result_text
from edgekit.artifact.store import amend, commit, read_artifact
from edgekit.model.spec import Array
from edgekit.report.imports import write_imported
from edgekit.storage.files import digest_file
from edgekit.storage.verified_io import seal_record

SIDE, GRID = 224, 14
COLOURS = {"red": (206, 60, 50), "green": (60, 150, 80), "blue": (60, 100, 200), "yellow": (230, 190, 60)}
KINDS = ("circle", "square", "triangle")
ORT = "ONNX Runtime 1.31.1, CPU, 2 threads"
FP32 = {"max abs": 1e-4, "coverage@32 drop": 0.002}
FP16 = {"max abs": 1e-2, "cosine": 0.997, "snr": 20.0, "coverage@32 drop": 0.002}
INT8 = {"spearman": 0.99, "lost mass": 0.01, "coverage@32 drop": 0.005}
HOST = {"processor": "Example CPU @ 2.6 GHz", "instruction sets": "AVX2, VNNI", "threads": "2", "system": "Linux 6.1"}


@dataclass
class Builder:
    """Writes one build folder."""

    folder: Path
    n: int = 12
    relevance: Array = field(init=False)
    names: list[str] = field(init=False)

    def reference(self, **changes: Any) -> None:
        random = np.random.default_rng(7)
        made = [scene(random) for _ in range(self.n)]
        self.names = [f"scene-{i:03d}" for i in range(self.n)]
        self.relevance = np.stack([truth for _, truth, _ in made]).astype(np.float32)
        folder = self.folder / "reference"
        folder.mkdir(parents=True)
        queries = random.normal(size=(self.n, 768)).astype(np.float32)
        images = np.ascontiguousarray(np.stack([image for image, _, _ in made]))
        save_file({"evaluation/images": images, "evaluation/queries": queries}, folder / "inputs.safetensors")
        save_file({"evaluation/relevance": self.relevance}, folder / "outputs.safetensors")
        facts = {
            "device": "NVIDIA H200",
            "device_kind": "cuda",
            "driver": "570.124",
            "versions": {"torch": "2.13.0", "cuda": "12.8", "numpy": "2.4.6"},
            "flags": {"tf32": False, "deterministic": True, "dtype": "float32"},
            "noise": {"relevance": {"gpu_cpu32": 8.3e-7, "cpu32_cpu64": 5.1e-7}, "tokens": {"gpu_cpu32": 4.4e-6}},
            "latency": {
                "batch1": {"eager": 2.41, "compiled": 1.33, "cuda_graph": 0.51},
                "batch32": {"eager": 3.9, "compiled": 2.7, "cuda_graph": 2.2},
            },
            "names": self.names,
            "captions": [query for _, _, query in made],
            "metric": {"name": "coverage@32", "mean": 0.9931, "values": list(random.uniform(0.95, 1, self.n))},
        }
        facts |= {f"{name}_sha256": digest_file(folder / f"{name}.safetensors") for name in ("inputs", "outputs")}
        told = {k: v for k, v in (facts | changes).items() if v is not None}
        (folder / "reference.json").write_text(seal_record(told))

    def recorded(self) -> str:
        path = self.folder / "reference" / "reference.json"
        return digest_file(path) if path.is_file() else "3" * 64

    def artifact(self, target: str, precision: str, size: int = 4096, **changes: Any) -> Manifest:
        folder = self.folder / target
        folder.mkdir(parents=True)
        # One field that ONNX does not know, so that the bytes are a protobuf.
        head = bytes([0x82, 0x7D]) + bytes([size - 4 & 0x7F | 0x80, size - 4 >> 7])
        (folder / "model.onnx").write_bytes(head + np.random.default_rng(len(target)).bytes(size - 4))
        for variant in changes.get("bundle", BundleInfo()).variants:
            (folder / variant.path).write_bytes(bytes([0x82, 0x7D, 0]))  # no model is opened by a report
        outputs = (TensorInfo(name="relevance", dtype="float32", shape=("batch", "patches"), role="scores"),)
        draft = Manifest(
            **{
                "name": "arr-coc-tiny",
                "target": target,
                "precision": precision,
                "entry": "model.onnx",
                "export": ExportInfo(
                    key="0" * 64,
                    source=Source(name="model", sha256="1" * 64),
                    model_sha256="2" * 64,
                    tools={"onnx": "1.23.2", "torch": "2.13.0"},
                ),
                "outputs": outputs,
                "files": (),
                **changes,
            }
        )
        return commit(folder, draft)

    def judge(self, target: str, places: list[EvaluationResult], size: int, home: str = "", **changes: Any) -> None:
        manifest = read_artifact(self.folder / target)
        found: dict[str, Any] = {
            "name": manifest.name,
            "target": target,
            "precision": manifest.precision,
            "size": size,
            "places": places,
            "artifact_sha256": manifest.sha256,
            "reference_sha256": self.recorded(),
            "reference_device": "NVIDIA H200",
            "host": HOST,
        }
        result = Result(**(found | changes))
        if home:
            write_imported(self.folder / home, {RESULT: result_text(result).encode()})
        else:
            self.enter(target, {RESULT: result_text(result).encode()})

    def enter(self, target: str, results: dict[str, bytes]) -> None:
        """Let an artifact's manifest name further results."""
        enter(self.folder / target, results)

    def scores(self, target: str, place: str, error: float, seed: int, spoil: int = -1) -> Array:
        """Keep a candidate's maps: reference plus errors whose size varies with the image; one image may be spoilt."""
        random = np.random.default_rng(seed)
        scale = error * random.lognormal(-0.7, 0.5, (self.n, 1))
        maps = self.relevance + scale * random.normal(0, 0.4, self.relevance.shape)
        if spoil >= 0:
            maps[spoil] = np.roll(maps[spoil].reshape(GRID, GRID), 3, 1).ravel()
        maps = np.clip(maps, 0, 1).astype(np.float32)
        self.enter(target, {f"scores-{place}.safetensors": save({"relevance": maps})})
        return maps


def enter(folder: Path, results: Mapping[str, bytes]) -> None:
    """Let the manifest of an artifact's folder name further results."""
    manifest = read_artifact(folder)
    there = {file.path: (folder / file.path).read_bytes() for file in manifest.results}
    amend(folder, manifest.verdicts, {**there, **results})


def scene(random: np.random.Generator) -> tuple[Array, Array, str]:
    """An image [3, H, W] in [0, 1], the relevance of its patches [N] and its query."""
    low, high = random.uniform(60, 200, (2, 3))
    slope = np.linspace(0, 1, SIDE)[:, None, None]
    base = low * (1 - slope) + high * slope + random.normal(0, 7, (SIDE, SIDE, 3))
    picture = Image.fromarray(np.clip(base, 0, 255).astype(np.uint8))
    truth = Image.new("L", (SIDE, SIDE))
    wanted = (str(random.choice(list(COLOURS))), str(random.choice(KINDS)))
    for i in range(7):
        colour, kind = wanted if i == 6 else (str(random.choice(list(COLOURS))), str(random.choice(KINDS)))
        x, y = random.integers(10, SIDE - 70, 2).tolist()
        side = int(random.integers(28, 64))
        shape(ImageDraw.Draw(picture), kind, (x, y, side), COLOURS[colour])
        shape(ImageDraw.Draw(truth), kind, (x, y, side), 255 if (colour, kind) == wanted else 0)
    covered = np.asarray(truth, np.float64).reshape(GRID, 16, GRID, 16).mean((1, 3)) / 255
    relevance = np.clip(0.15 + 0.8 * covered + random.normal(0, 0.06, (GRID, GRID)), 0, 1)
    image = np.asarray(picture, np.float32).transpose(2, 0, 1) / 255
    return image, relevance.ravel(), " ".join(wanted)


def shape(draw: ImageDraw.ImageDraw, kind: str, box: tuple[int, int, int], fill: Any) -> None:
    x, y, side = box
    if kind == "circle":
        draw.ellipse((x, y, x + side, y + side), fill)
    elif kind == "square":
        draw.rectangle((x, y, x + side, y + side), fill)
    else:
        draw.polygon([(x, y + side), (x + side // 2, y), (x + side, y + side)], fill)


def measures(
    builder: Builder, maps: Array, limits: Mapping[str, float], metric: str = "coverage@32"
) -> tuple[Measure, ...]:
    """What a judge would write of some maps."""
    off = np.abs(maps - builder.relevance)
    worst = int(off.max(1).argmax())
    where = {"image": builder.names[worst], "patch": int(off[worst].argmax())}
    ranks = [
        np.corrcoef(a.argsort().argsort(), b.argsort().argsort())[0, 1]
        for a, b in zip(maps, builder.relevance, strict=True)
    ]
    top = [
        len(set(a.argsort()[-32:]) & set(b.argsort()[-32:])) / 32 for a, b in zip(maps, builder.relevance, strict=True)
    ]
    values = {
        "max abs": float(off.max()),
        "mean abs": float(off.mean()),
        "spearman": float(min(ranks)),
        "agreement": float(min(top)),
        "lost mass": float(off.mean() / 10),
        f"{metric} drop": float(off.mean() / 30),
        "cosine": 1 - float((off**2).mean()),
        "snr": float(-20 * np.log10(off.mean())),
    }
    return tuple(judged(name, value, limits.get(name), where) for name, value in values.items())


def judged(metric: str, value: float, limit: float | None, where: Mapping[str, Any]) -> Measure:
    more = metric in ("spearman", "agreement", "cosine", "snr")
    passed = limit is None or (value >= limit if more else value <= limit)
    noise = 8.3e-7 if metric == "max abs" and limit else None
    facts: dict[str, Any] = {"value": value, "limit": limit, "table": limit, "noise": noise, "passed": passed}
    return Measure(batch="evaluation", output="relevance", metric=metric, **facts, **where)


def timing(p50: float, device: str = ORT) -> Timing:
    shares = {"p90": 1.1, "p95": 1.16, "p99": 1.4, "mean": 1.02, "std": 0.06}
    return Timing.model_validate(
        {"device": device, "runs": 400, "p50": p50} | {name: p50 * share for name, share in shares.items()}
    )


def ratio(baseline: str, value: float) -> Ratio:
    return Ratio(baseline=baseline, value=value, low=value * 0.96, high=value * 1.05)


def ran(builder: Builder, maps: Array, limits: Mapping[str, float], p50: float = 0, **facts: Any) -> EvaluationResult:
    """A place in which an artifact gave some maps, timed against onnx and pytorch on the CPU, alone elsewhere."""
    made: dict[str, Any] = {"place": "cpu", "device": ORT, "status": "verified", "timings": {}, **facts}
    found = measures(builder, maps, limits)
    bad = [m for m in found if not m.passed]
    if bad:
        made |= {"status": "rejected", "reasons": tuple(limit_exceeded(m) for m in bad)}
    if p50:
        made["timings"] = {"candidate": timing(p50, made["device"])}
    if p50 and made["place"] == "cpu":
        made["timings"] |= {"onnx": timing(3.8), "pytorch": timing(9.4, "torch 2.13.0, CPU, 2 threads")}
        made["ratios"] = (ratio("onnx", 3.8 / p50), ratio("pytorch", 9.4 / p50))
    return EvaluationResult(measures=found, **made)


def limit_exceeded(m: Measure) -> Fact:
    where: dict[str, Any] = {"batch": m.batch, "output": m.output, "image": m.row, "patch": m.index}
    return Fact(code=Code.LIMIT_EXCEEDED, metric=m.metric, value=m.value, limit=m.limit, **where)


def full(builder: Builder) -> None:
    """Every kind of row that there is."""
    builder.reference()
    tie = Fact(code=Code.TIES_AT_K, output="indices", metric="swap gap", value=1.7e-6, limit=1e-4)
    slower = fact(Code.SLOWER, baseline="onnx", ratio=0.86, low=0.83, high=0.9)
    for target, precision, error, limits, p50, size, spoil, notes in (
        ("onnx", "fp32", 1.1e-6, FP32, 3.82, 12_480_000, -1, (tie,)),
        ("onnx-fp16", "fp16", 9e-4, FP16, 3.5, 6_260_000, -1, ()),
        ("onnx-int8-dynamic", "int8", 0.012, INT8, 4.4, 3_300_000, -1, (slower,)),
        ("onnx-int8-static", "int8", 0.07, INT8, 2.1, 3_150_000, 4, ()),
    ):
        builder.artifact(target, precision, notes=("TopK and the normalisations stay in fp32.",))
        maps = builder.scores(target, "cpu", error, len(target), spoil)
        builder.judge(target, [ran(builder, maps, limits, p50, notes=notes)], size)
    table = builder.folder / "cache" / "onnx-int8-static" / "trials.json"
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_text(json.dumps(trials()))
    _web(builder)
    _elsewhere(builder)


def trials() -> list[dict[str, Any]]:
    names = ("name", "calibration", "per_channel", "p50_ms", "size", "measures", "passed", "chosen", "float_groups")
    rows: tuple[tuple[Any, ...], ...] = (
        ("dynamic", "none", True, 3.0, 3_300_000, {"spearman": 0.9962}, True, True, []),
        ("entropy", "entropy", True, 2.1, 3_150_000, {"spearman": 0.81}, False, False, ["balancing"]),
        ("percentile", "percentile", True, 2.4, 3_400_000, {"spearman": 0.992}, True, False, ["knowing", "balancing"]),
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


def _web(builder: Builder) -> None:
    variants = tuple(
        Variant(name=name, precision=precision, path=f"{name}.onnx", target=target)
        for name, precision, target in (("fp32", "fp32", "onnx"), ("q8", "int8", "onnx-int8-dynamic"))
    )
    builder.artifact("web", "mixed", bundle=BundleInfo(variants=variants))
    places = []
    for name, error, p50 in (("wasm-fp32", 2e-6, 9.6), ("wasm-q8", 0.012, 6.1), ("webgpu-fp32", 4e-5, 0)):
        maps = builder.scores("web", name, error, len(name) + 3)
        limits = INT8 if name.endswith("q8") else FP32
        where = {"place": name, "variant": name.partition("-")[2], "device": "Chromium 141, onnxruntime-web 1.30"}
        places.append(ran(builder, maps, limits, p50, **where))
    builder.judge("web", places, 4_700_000)


def _elsewhere(builder: Builder) -> None:
    builder.artifact("coreml", "fp16")
    maps = builder.scores("coreml", "interpreter", 2e-3, 9)
    text = "Core ML runs on macOS and iOS only: copy the folder to a Mac and run `edgekit verify` there"
    here = ran(builder, maps, FP16, place="interpreter", device="edgekit MIL interpreter")
    missing = fact(Code.RUNTIME_MISSING, text=text)
    there = EvaluationResult(place="device", status="not verified here", reasons=(missing,))
    builder.judge("coreml", [here, there], 6_300_000)
    builder.artifact("torch-mobile", "fp32")
    worst = judged("max abs", 3.1e-6, 1e-4, {"image": "scene-003", "patch": 17})
    timings = {"candidate": timing(6.7, "Pixel 8, NNAPI")}
    phone = EvaluationResult(place="nnapi", device="Pixel 8", status="verified", timings=timings, measures=(worst,))
    host = {"system": "Android 16", "processor": "Tensor G3"}
    builder.judge("onnx", [phone], 12_480_000, home="imported/pixel-8", host=host)


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path / "arr-coc-tiny")


@pytest.fixture
def filled(builder: Builder) -> Builder:
    full(builder)
    return builder
