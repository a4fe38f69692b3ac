"""The commands `check`, `compare` and `lint`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli.arguments import (
    NOT_CONFIRMED,
    REJECTED,
    Axes,
    Budgets,
    Data,
    Inputs,
    Json,
    Limits,
    Metric,
    Outputs,
    Quiet,
    Verbose,
    print_answer,
)
from edgekit.cli.build_commands import conclude, progress_style
from edgekit.cli.completion import among, model_names
from edgekit.cli.help import epilog
from edgekit.errors import UsageError
from edgekit.storage.files import finite

PRECISIONS = ("auto", "fp32", "fp16", "int8")


@epilog(
    "Examples:\n\n`edgekit check model.onnx --against mypkg.net:make`\n\n"
    "`edgekit check model_int8.onnx --against model.onnx --data photos/ --metric top_k:logits`\n\n"
    "`edgekit check net.tflite --against net.onnx --map serving_default_x=x,layout=nhwc,range=0..255`\n\n"
    "`edgekit check yolo_openvino_model/ --against yolo.onnx --json`"
)
def check(
    file: Annotated[
        Path,
        typer.Argument(
            help="A file that another tool made: .onnx, .xml (OpenVINO), .tflite, .pte, .mlpackage, .pt, .torchscript, "
            ".ptl, .pt2; or a tool's folder with one of these."
        ),
    ],
    against: Annotated[
        str,
        typer.Option(
            "--against",
            help="The model: whatever `edgekit export` takes (package.module:factory, net.onnx, model.pt2, "
            "transformers:FOLDER, a preset).",
            autocompletion=model_names,
        ),
    ],
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="Which name of the file is which of the model's, with its layout and range: THEIRS=OURS, or "
            "pixels=images,layout=nhwc,range=0..255; repeat for more.",
        ),
    ] = None,
    precision: Annotated[
        str,
        typer.Option(
            "--precision",
            help="Whose limits apply: fp32, fp16 or int8; auto: those of the file's weights.",
            autocompletion=among(*PRECISIONS),
        ),
    ] = "auto",
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of results.")] = Path("check"),
    axes: Axes = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    data: Data = None,
    metric: Metric = "",
    task: Annotated[str, typer.Option("--task", help="Task of transformers:FOLDER.")] = "",
    weights: Annotated[
        Path | None, typer.Option("--weights", help="File of weights to load into package.module:factory.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the model and of its folder.")] = None,
    budget: Budgets = None,
    limits: Limits = "all",
    verbose: Verbose = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Judge a file that another tool made, against its model. Exit 3 if it is rejected, 4 if it cannot be judged."""
    from edgekit.cli.console import show_notes
    from edgekit.pipeline.request import Criteria, EvaluationData, ModelFacts
    from edgekit_check import api

    build = api.check(
        file,
        against,
        map=pairs or (),
        precision=precision,
        output=output,
        facts=ModelFacts(axes=axes, inputs=inputs, outputs=outputs, task=task, weights=weights, name=name),
        data=EvaluationData(data=data, metric=metric),
        criteria=Criteria(budget=tuple(budget or ()), limits=limits),
        progress=progress_style(as_json or quiet),
    )
    [outcome] = build.outcomes
    if outcome.manifest is not None and not as_json and not quiet:
        show_notes(outcome.manifest.notes)
    conclude(build, as_json, quiet, verbose)
    # A gate must not open for a file that nobody judged.
    if outcome.status == "not verified here":
        sys.exit(NOT_CONFIRMED)


@epilog(
    "Examples:\n\n`edgekit compare model.onnx model_quantized.onnx --data photos/`\n\n"
    "`edgekit compare net.onnx net.tflite --html difference.html`\n\n"
    "`edgekit compare before.onnx after.onnx --most 0.001`"
)
def compare(
    first: Annotated[Path, typer.Argument(help="A file, as for `edgekit check`.")],
    second: Annotated[Path, typer.Argument(help="Another file, of any of these formats.")],
    pairs: Annotated[
        list[str] | None,
        typer.Option("--map", help="Which name of the second file is which of the first's: THEIRS=OURS."),
    ] = None,
    axes: Axes = None,
    inputs: Inputs = None,
    data: Data = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="Seconds for which each file is timed; 0 for none.")] = 1.0,
    most: Annotated[
        float | None, typer.Option(min=0.0, help="Exit 3 if an output differs by more than this share of its peak.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Page to write.")] = None,
    as_json: Json = False,
) -> None:
    """Compare two files of any format on the same inputs: outputs, first differing layer, speed and size."""
    from edgekit_check import comparison

    result = comparison.compare(first, second, map=pairs or (), axes=axes, inputs=inputs, data=data, seconds=seconds)
    if html is not None:
        comparison.write_page(result, html)
    pages = [html] if html is not None else []
    print_answer(as_json, finite(result.as_record()), [*comparison.lines(result), *pages])
    if most is not None and not result.worst <= most:
        sys.exit(REJECTED)


@epilog(
    "Examples:\n\n`edgekit lint net.onnx --for onnxruntime-1.16 --for onnxruntime-web-1.20`\n\n"
    "`edgekit lint net.mlpackage --for coreml-ios16`\n\n"
    "`edgekit lint yolo_openvino_model/ --for openvino-2025.4 --json`\n\n"
    "`edgekit lint app-release.apk`"
)
def lint(
    file: Annotated[
        Path,
        typer.Argument(
            help="A file, as for `edgekit check`; or an Android app or library (.apk, .aab, .aar, .so), whose native "
            "libraries must be aligned to pages of 16 KB."
        ),
    ],
    runtimes: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            help="Runtime and version: onnxruntime-1.20, onnxruntime-web-1.20, coreml-ios17, executorch-1.4, "
            "openvino-2025.4; repeat for more.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict whether a runtime takes a file, or Android an app's libraries, without running it. Exit 3 if not."""
    from edgekit_check import page_size, prediction

    if file.suffix.lower() in page_size.PACKAGES:
        if runtimes:
            raise UsageError("--for is for models. Leave it out for an Android package")
        libraries = page_size.check_page_size(file)
        records = [{**asdict(library), "exempt": library.is_exempt} for library in libraries]
        source = page_size.load_table()["source"]
        answer = {"file": str(file), "page_size": page_size.PAGE, "libraries": records, "source": source}
        print_answer(as_json, answer, page_size.lines(libraries))
        if any(library.problems for library in libraries):
            sys.exit(REJECTED)
        return
    if not runtimes:
        raise UsageError("name a runtime and its version with --for, such as --for onnxruntime-1.20")
    predictions = prediction.lint(file, runtimes)
    records = [{**asdict(p), "impossible": p.is_impossible} for p in predictions]
    answer = {"file": str(file), "runtimes": records, "note": prediction.NOTE}
    print_answer(as_json, answer, prediction.lines(predictions))
    if any(p.is_impossible for p in predictions):
        sys.exit(REJECTED)
