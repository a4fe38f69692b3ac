"""Static INT8 of convolutions beside their fp32 ONNX, both edgekit's: speed in one run, seeded weights, no verdict.

    python -m tools.bench.convolutions [--only unet]

Each model is made as `-t onnx` and `-t onnx-int8-static -O onnx-int8-static.search=none` make it, and both are run in
turn in one process, with a thread a core; a ratio is fp32's median over INT8's, with a 95 % interval.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit.cli.console import print_table
from edgekit.evaluate import timing
from edgekit.judge import budget
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit.runtime.ort import OrtRuntime
from edgekit_targets.onnx.passes import qdq
from edgekit_targets.onnx.passes.groups import QuantConfig, groups_after_extremes
from edgekit_targets.onnx.quantization import calibration, conditioning
from edgekit_targets.onnx.quantization.calibration import observe
from tools.bench.plain import export_own
from tools.zoo.plain import pair
from tools.zoo.samples import of, pictures, seeded

SECONDS = 8.0
SAMPLES = calibration.LEAST


class UNet(nn.Module):
    """Three levels of two convolutions each, as for medical pictures (Ronneberger et al., 2015), thinner."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(2)
        self.down1, self.down2, self.down3 = pair(3, width), pair(width, 2 * width), pair(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.back2, self.back1 = pair(4 * width, 2 * width), pair(2 * width, width)
        self.leave = nn.Conv2d(width, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        one = self.down1(images)
        two = self.down2(self.pool(one))
        back = self.back2(torch.cat([two, self.up2(self.down3(self.pool(two)))], 1))
        return torch.sigmoid(self.leave(self.back1(torch.cat([one, self.up1(back)], 1))))


class UNetResized(UNet):
    """The same with bilinear resizing in place of transposed convolutions, as many are."""

    def __init__(self) -> None:
        super().__init__()
        self.up2, self.up1 = nn.Conv2d(128, 64, 1), nn.Conv2d(64, 32, 1)  # type: ignore[assignment]

    def forward(self, images: Tensor) -> Tensor:
        one = self.down1(images)
        two = self.down2(self.pool(one))
        low = functional.interpolate(self.up2(self.down3(self.pool(two))), scale_factor=2.0, mode="bilinear")
        back = self.back2(torch.cat([two, low], 1))
        high = functional.interpolate(self.up1(back), scale_factor=2.0, mode="bilinear")
        return torch.sigmoid(self.leave(self.back1(torch.cat([one, high], 1))))


class Logits(nn.Module):
    """A classifier of transformers that answers with a tensor."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.inner(pixel_values=images).logits
        return logits


def resnet(depths: tuple[int, ...], kind: str, widths: tuple[int, ...]) -> nn.Module:
    """Transformers' ResNet."""
    import transformers as t

    config = t.ResNetConfig(depths=list(depths), layer_type=kind, hidden_sizes=list(widths), num_labels=10)
    return Logits(t.ResNetForImageClassification(config))


def mobilenet() -> nn.Module:
    """Transformers' MobileNetV2 of width 1."""
    import transformers as t

    return Logits(t.MobileNetV2ForImageClassification(t.MobileNetV2Config(num_labels=10)))


MODELS: dict[str, tuple[Callable[[], nn.Module], int, Output]] = {
    "unet": (UNet, 128, Output("mask", role="mask")),
    "unet, resized": (UNetResized, 128, Output("mask", role="mask")),
    "resnet-18": (lambda: resnet((2, 2, 2, 2), "basic", (64, 128, 256, 512)), 224, Output("logits", role="logits")),
    "resnet-50": (
        lambda: resnet((3, 4, 6, 3), "bottleneck", (256, 512, 1024, 2048)),
        224,
        Output("logits", role="logits"),
    ),
    "mobilenet-v2": (mobilenet, 224, Output("logits", role="logits")),
}


def main() -> None:
    """Make all, measure all, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MODELS, action="append", help="one model; may be given more than once")
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    rows = [_row(name) for name in chosen.only or MODELS]
    heads = ("model", "side", "fp32 bytes", "INT8 bytes", "fp32 p50 ms", "INT8 p50 ms", "speed", "95 %")
    print_table(heads, rows)


def _row(name: str) -> tuple[str, ...]:
    make, side, output = MODELS[name]
    samples = pictures("images", side)
    module = seeded(make(), 1, samples)
    image = Input("images", ("batch", 3, side, side), kind="image")
    spec = ModelSpec(
        name="net",
        module=module,
        inputs=(image,),
        outputs=(output,),
        axes={"batch": Axis(1, 1, 4)},
        calibration=lambda count: of(samples, count),
    )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        fp32, int8 = _made(spec, place)
        runtimes = {"fp32": OrtRuntime(fp32), "int8": OrtRuntime(int8)}
        timed = timing.measure(runtimes, spec.random(0), seconds=SECONDS)
        ratio = budget.ratio(timed, "fp32", "int8")
        sizes = (f"{fp32.stat().st_size:,}", f"{int8.stat().st_size:,}")
        medians = tuple(f"{timed[kind].percentile(50):.2f}" for kind in runtimes)
        return (name, str(side), *sizes, *medians, f"{ratio.value:.2f}", f"{ratio.low:.2f} to {ratio.high:.2f}")


def _made(spec: ModelSpec, place: Path) -> tuple[Path, Path]:
    fp32 = export_own(spec, place)
    graph = onnx.load(fp32)
    shown = calibration.samples(spec, count=SAMPLES)
    ready = conditioning.condition(graph, shown, groups_after_extremes(graph), False)
    observed = observe(ready.graph, qdq.activations(ready.graph), shown, ("minmax",), lambda done: None)
    made = qdq.quantize_static(ready.graph, QuantConfig(floats=ready.floats), observed)
    onnx.save(made, place / "static.onnx")
    return fp32, place / "static.onnx"


if __name__ == "__main__":
    main()
