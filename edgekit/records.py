"""The records of edgekit's own commands, sources and places (`edgekit.doors`)."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.doors import Command, Panel, PlaceRuntime, Source
from edgekit.errors import install_command


def _command(name: str, panel: Panel, summary: str, module: str, function: str = "") -> Command:
    return Command(name=name, panel=panel, summary=summary, function=f"edgekit.cli.{module}:{function or name}")


EXPORT = _command(
    "export",
    "Export",
    "Export a model, verify each artifact against the model, and write the report.",
    "build_commands",
)
QUANTIZE = _command("quantize", "Export", "Search for a static INT8 recipe, and verify the result.", "build_commands")
VERIFY = _command("verify", "Export", "Check, run and judge a build's artifacts again.", "build_commands")
REFERENCE = _command(
    "reference", "Export", "Record a model's outputs, noise and latency on a device.", "build_commands"
)
TARGETS = _command("targets", "Export", "List the targets, or show one with its options.", "target_commands")
REPORT = _command("report", "Understand", "Write a build's report again.", "report_commands")
DIFF = _command("diff", "Understand", "Show what changed between two builds.", "report_commands")
DOCTOR = _command("doctor", "Understand", "Show what can be exported and verified on this host.", "target_commands")
SKILL = _command("skill", "Understand", "Print a skill for coding agents.", "target_commands")
PLACES = _command("places", "Other machines", "List the places in which artifacts can be judged.", "place_commands")
PACK = _command(
    "pack", "Other machines", "Pack artifacts for a host that cannot be reached from here.", "place_commands"
)
IMPORT = _command("import", "Other machines", "Judge the results of a pack.", "place_commands", "import_")
ENV = _command("env", "Other machines", "Install and list environments that some targets need.", "place_commands")


PROGRAM = Source(
    form="a saved program's path (model.pt2)", suffixes=(".pt2",), open="edgekit.model.sources.program:open_file"
)
ONNX_FILE = Source(form="an ONNX file's path", suffixes=(".onnx",), open="edgekit.model.sources.onnx:open_file")


ONNX, BUCKETS = ".onnx", "buckets.json"
CUDA, TENSORRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"


def _place(summary: str, settings: Mapping[str, str], extra: str = "cpu", hint: str = "") -> PlaceRuntime:
    return PlaceRuntime(
        summary=summary,
        library="onnxruntime",
        opener="edgekit.runtime.ort_session:OrtSession",
        extra=extra,
        hint=hint,
        opens=(ONNX,),
        settings=settings,
        folder_index=BUCKETS,
        folder_opener="edgekit_targets.onnx.buckets:BucketRuntime",
    )


ORT = _place("ONNX Runtime on the CPU, with its default settings", {})
EXTENDED = _place("the same, without layout changes", {"optimization": "enable_extended"})
BASIC = _place("the same, with basic graph optimisations only", {"optimization": "enable_basic"})
OFF = _place("the same, without graph optimisations", {"optimization": "disable_all"})
FP32 = _place(
    "ONNX Runtime on an NVIDIA GPU, fp32 without TF32", {"provider": CUDA, "provider.use_tf32": "0"}, extra="gpu"
)
TF32 = _place(
    "the same with its default settings, with TF32", {"provider": CUDA, "provider.use_tf32": "1"}, extra="gpu"
)
TENSORRT_ENGINES = _place(
    "ONNX Runtime on an NVIDIA GPU, in engines that TensorRT builds there, which no GPU has run yet",
    {"provider": TENSORRT},
    hint=f"{install_command('gpu')}, and TensorRT's libraries",
)
