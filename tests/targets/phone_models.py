"""Small models, ours and others', and an artifact of one made in this process: what the phone targets' tests share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit import registry
from edgekit.artifact.manifest import AxisInfo, Manifest, TensorInfo
from edgekit.artifact.store import commit, own_files
from edgekit.model.folder import save_model
from edgekit.model.records import model_digest
from edgekit.model.spec import Array, Axis, EvaluationSet, Input, ModelSpec, Output
from edgekit.storage.files import staging
from edgekit.target import ExportResult, Job, Runtime, Target
from tests.manifests import manifest

if TYPE_CHECKING:
    import torch


def arr_coc() -> ModelSpec:
    """The family's own module, one block deep, on small images."""
    from edgekit_arrcoc.model import ArrCoc, Size, initialize

    module = ArrCoc(Size(width=64, heads=2, depth=1, top=8))
    initialize(module, seed=0)
    return ModelSpec(
        name="arr-coc-small",
        module=module.eval(),
        inputs=(
            Input("images", ("batch", 3, "height", "width"), kind="image"),
            Input("queries", ("batch", 768), low=-1.0, kind="query"),
        ),
        outputs=(
            Output("relevance", "scores"),
            Output("budgets", "counts", "relevance", "int64", 64, 400),
            Output("indices", "ranking", "relevance", "int64"),
            Output("tokens", "features", "indices"),
        ),
        axes={"batch": Axis(1, 1, 8), "height": Axis(96, 64, 160, 16), "width": Axis(96, 64, 160, 16)},
        factory=f"{__name__}:arr_coc",
        calibration=calibration,
    )


def calibration(count: int) -> EvaluationSet:
    """Random samples: enough to fix the ranges of a module with random weights."""
    drawn = [arr_coc_inputs(seed) for seed in range(count)]
    return EvaluationSet(
        inputs={name: np.concatenate([inputs[name] for inputs in drawn]) for name in drawn[0]},
        names=tuple(str(seed) for seed in range(count)),
    )


def arr_coc_inputs(seed: int) -> dict[str, Array]:
    """One image of smooth colours and a query."""
    draw = np.random.default_rng(seed)
    coarse = draw.random((1, 3, 6, 6)).repeat(16, 2).repeat(16, 3)
    return {"images": coarse.astype(np.float32), "queries": draw.uniform(-1, 1, (1, 768)).astype(np.float32)}


def mobilevit() -> ModelSpec:
    """MobileViT (Mehta and Rastegari, 2022, https://arxiv.org/abs/2110.02178), small, random weights."""
    from transformers import MobileViTConfig, MobileViTForImageClassification

    config = MobileViTConfig(
        image_size=64, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 48], num_labels=10
    )
    return _classifier("mobilevit", MobileViTForImageClassification(config), 64)


def vit() -> ModelSpec:
    """ViT (Dosovitskiy et al., 2021, https://arxiv.org/abs/2010.11929), small, random weights."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        image_size=64,
        patch_size=16,
        hidden_size=48,
        num_hidden_layers=1,
        num_attention_heads=3,
        intermediate_size=96,
        num_labels=10,
    )
    return _classifier("vit", ViTForImageClassification(config), 64)


def pooled() -> ModelSpec:
    """A convolution and a linear layer, of any image size: lowered in seconds."""
    import torch

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = torch.nn.Conv2d(3, 16, 3, padding=1)
            self.linear = torch.nn.Linear(16, 8)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            seen = torch.relu(self.convolution(images)).mean((2, 3))
            logits: torch.Tensor = self.linear(seen)
            return logits

    module = Pooled()
    generator = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5, generator=generator)
    draw = np.random.default_rng(3)
    images = draw.random((8, 3, 16, 16)).astype(np.float32)
    return ModelSpec(
        name="pooled",
        module=module.eval(),
        inputs=(Input("images", ("batch", 3, "height", "width"), kind="image"),),
        outputs=(Output("logits"),),
        axes={"batch": Axis(1, 1, 8), "height": Axis(16, 8, 32, 4), "width": Axis(16, 8, 32, 4)},
        factory=f"{__name__}:pooled",
        calibration=lambda count: EvaluationSet(
            inputs={"images": images[:count]}, names=("random",) * len(images[:count])
        ),
    )


def _classifier(name: str, network: torch.nn.Module, size: int) -> ModelSpec:
    import torch

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.network(images, return_dict=False)[0]
            return logits

    generator = torch.Generator().manual_seed(0)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=generator)
    return ModelSpec(
        name=name,
        module=Logits().eval(),
        inputs=(Input("images", ("batch", 3, size, size), kind="image"),),
        outputs=(Output("logits"),),
        axes={"batch": Axis(1, 1, 8)},
        factory=f"{__name__}:{name}",
        evaluation=lambda: _pictures(6, size, seed=1),
        calibration=lambda count: _pictures(count, size, seed=2),
    )


def _pictures(count: int, size: int, seed: int) -> EvaluationSet:
    """Squares of random colours: bytes, scaled to [0, 1]."""
    coarse = np.random.default_rng(seed).integers(0, 256, (count, 3, 8, 8)) / 255
    images = coarse.repeat(size // 8, 2).repeat(size // 8, 3).astype(np.float32)
    return EvaluationSet(inputs={"images": images}, names=tuple(f"squares {number}" for number in range(count)))


def answer_of(folder: str, progress: object) -> dict[str, object]:
    """Open an ExecuTorch artifact and run it once: called in a worker, which a damaged file may end."""
    from edgekit_targets.executorch import export as executorch

    runtime = opened(executorch.TARGET, Path(folder))
    return {name: array.tolist() for name, array in runtime.run(pooled().random(1)).items()}


def opened(target: Target, artifact: Path) -> Runtime:
    """An artifact in its target's first place."""
    return target.load(artifact, target.places[0])


def made(target: Target, name: str, spec: ModelSpec, folder: Path, **options: str) -> Path:
    """Export in this process and commit, as the pipeline does in a worker; returns the artifact's folder."""
    source = folder / "model"
    if not source.is_dir():
        save_model(spec, source)
    if target.source == "program":
        from edgekit.model.graph import capture
        from edgekit.model.program import save_program

        source = folder / "program"
        if not source.is_dir():
            save_program(capture(spec), source, model_digest(folder / "model"))
    job = Job(
        model=folder / "model",
        reference=folder / "reference",
        entry=source,
        dynamic=tuple(spec.axes),
        options=registry.parse_options(name, target, options),
    )
    with staging(folder / name, own_files) as staged:
        exported = target.export(source, staged, job)
        commit(staged, described(spec, name, exported))
    return folder / name


def described(spec: ModelSpec, name: str, exported: ExportResult) -> Manifest:
    """The manifest that the pipeline would write, without hashes."""
    return manifest(
        name=spec.name,
        target=name,
        precision=exported.precision,
        entry=exported.entry,
        inputs=tuple(TensorInfo.of_input(i) for i in spec.inputs),
        outputs=tuple(TensorInfo.of_output(o, ()) for o in spec.outputs),
        axes={n: AxisInfo.of_axis(a, n in exported.dynamic) for n, a in spec.axes.items()},
        notes=exported.notes,
    )
