"""Arguments that several commands share, and the exit codes.

Exit codes: 0 clean, 1 a bug (traceback), 2 something that the user can fix (one sentence), 3 an artifact was rejected
or is over budget, 4 a stored verdict could not be confirmed, 130 interrupted, 141 the reader left, 143 terminated.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, TextIO

import typer

from edgekit.cli.completion import among, model_names, place_names, target_names
from edgekit.cli.help import Commands
from edgekit.errors import UsageError, in_any_case

CLEAN, USER_ERROR, REJECTED, NOT_CONFIRMED, INTERRUPTED, READER_LEFT, TERMINATED = 0, 2, 3, 4, 130, 141, 143
DEFAULT_BUILD = Path("build/arr-coc-tiny")

app = typer.Typer(
    cls=Commands,
    name="edgekit",
    help="Export a PyTorch model to edge formats, and verify each artifact against a recorded reference.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_ANSWERS: ContextVar[TextIO | None] = ContextVar("answers", default=None)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Redirect all prints but `print_json`'s, even those of a model's code, to standard error."""
    token = _ANSWERS.set(sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _ANSWERS.reset(token)


def _print_and_exit(context: typer.Context, as_json: bool) -> bool:
    if as_json:
        context.with_resource(_alone())
    return as_json


def print_json(record: object) -> None:
    """Print the one object of --json."""
    print(json.dumps(record, indent=2), file=_ANSWERS.get() or sys.stdout)


def print_answer(as_json: bool, record: object, lines: Iterable[object]) -> None:
    """Print the one object of --json, or else lines."""
    if as_json:
        print_json(record)
        return
    for line in lines:
        print(line)


Json = Annotated[
    bool,
    typer.Option("--json", help="Print one machine-readable object and nothing else.", callback=_print_and_exit),
]
VERBOSE = "--verbose"
Verbose = Annotated[
    bool,
    typer.Option(
        "-v", VERBOSE, help="Print the evidence for each verdict, and the traceback if a model or a converter failed."
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print only what is not verified, and errors.")]
TrustBuild = Annotated[
    bool,
    typer.Option(
        "--trust-build",
        help="Run the build's code: its factory even if its source has changed, and its captured program.",
    ),
]
Key = Annotated[
    Path | None,
    typer.Option("--key", help="Public ECDSA key (PEM): the build must be signed by it and unchanged."),
]
RequireSignature = Annotated[
    bool, typer.Option("--require-signature", help="Fail without --key: for scripts and projects.")
]
BuildFolder = Annotated[
    Path,
    typer.Argument(
        help="A model's build folder, for example build/arr-coc-tiny, or its URL in a store: s3://BUCKET/NAME@VERSION."
    ),
]
Places = Annotated[
    list[str] | None,
    typer.Option(
        "--place",
        help="Further place: PLACE, or RUNTIME@ssh:USER@HOST[:PYTHON]; repeat for more. `edgekit places` lists them.",
        autocompletion=place_names,
    ),
]
Budgets = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        help="Limits on artifacts: p50=20ms,size=8MB,memory=200MB,open=1s,int8.task_drop=0.002. Over one: exit 3.",
    ),
]
DEVICES = ("cpu", "cuda")


def _device(name: str) -> str:
    if (device := in_any_case(name, DEVICES)) not in DEVICES:
        raise UsageError(f"unknown device '{name}'. Use {' or '.join(DEVICES)}")
    return device


Device = Annotated[str, typer.Option(help="cpu or cuda.", autocompletion=among(*DEVICES), callback=_device)]
Limits = Annotated[
    str,
    typer.Option(
        "--limits",
        help="all, or task: accept an fp16 or INT8 artifact that fails only on made inputs, if it holds all limits on "
        "your own inputs and your metric. The verdict says so.",
        autocompletion=among("all", "task"),
    ),
]
Images = Annotated[
    int | None,
    typer.Option(
        "--images",
        min=1,
        help="Number of evaluation inputs to run; other batches are reduced in proportion. Default: all.",
    ),
]
Chosen = Annotated[
    list[str] | None,
    typer.Option("-t", "--target", help="Artifact to use; repeat for more. Default: all.", autocompletion=target_names),
]
ModelName = Annotated[
    str,
    typer.Argument(
        help="A preset (`arr-coc-tiny`), a factory (`package.module:function`), an ONNX file (`net.onnx`), a program "
        "of torch.export (`model.pt2`), a checkpoint (`weights.safetensors`), `timm:NAME` or `transformers:FOLDER`.",
        autocompletion=model_names,
    ),
]

Axes = Annotated[
    list[str] | None,
    typer.Option(
        "--axes",
        help="Dynamic dimensions: INPUT:DIMENSION=AXIS:MIN..MAX/MULTIPLE@DEFAULT, for example "
        "ids:0=batch,1=length:1..512 or images:2=height:64..512/32@224; repeat for more inputs.",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--inputs",
        help="Facts of an input: pixels:kind=image,mean=0.485,0.456,0.406,std=0.25 or rate:range=8000..16000; "
        "also fit, channels, layout, and shape and dtype for a factory that returns a module. Repeat for more inputs.",
    ),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "--outputs",
        help="Facts of an output: logits:role=logits,classes=cat,dog; also range, of, axes, threshold. Repeat "
        "for more outputs.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Folder of real inputs to judge on: a folder of pictures for each class, pictures with labels.csv, or "
        ".npz files with an array for each input. "
        "A command that calibrates INT8 splits 70 or more by their hashes without --calibration: a part calibrates, "
        "the others judge.",
    ),
]
Metric = Annotated[
    str,
    typer.Option(
        "--metric",
        help="Metric for --data with labels (labels.csv next to pictures, truth in .npz files): top_k:logits, or "
        "top_k:logits,k=5.",
    ),
]
Calibration = Annotated[
    Path | None,
    typer.Option("--calibration", help="Folder of other real inputs, like --data, that calibrate INT8."),
]


def required_key(key: Path | None, needed: bool) -> Path | None:
    """Return the key that must have signed; None if no signature is required.

    Raises:
        UsageError: If a signature is required without a key.
    """
    if needed and key is None:
        raise UsageError("--require-signature needs --key PUB, the public key of the builds' signer")
    return key
