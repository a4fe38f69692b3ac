"""The self-test of a folder for transformers.js: golden vectors, and a JavaScript module that runs them.

`edgekit-selftest.js` tries each dtype of the folder on WebGPU and WebAssembly in the visitor's browser, and returns the
quickest whose outputs are within the limits. It reads the golden vectors of web bundles (`golden.json`, `golden.bin`)
with two more fields:

- files: dtype, as transformers.js calls it -> path of its ONNX file.
- picture: `name`, `low` and `high` of the input that a picture of bytes is scaled to; null if there is none.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from edgekit.model.spec import ModelSpec
from edgekit.reference import golden
from edgekit.runtime.eager import EagerRuntime
from edgekit.runtime.ort import OrtRuntime

MODULE = Path(__file__).with_name("edgekit-selftest.js")
DTYPES = {"fp32": "fp32", "fp16": "fp16", "int8": "q8", "int4": "q4"}
"""Names of transformers.js, by precision."""
# Bytes of inputs and outputs; with more, only the first case is kept.
MOST = 200_000


def write_selftest(folder: Path, spec: ModelSpec, reference: Path, files: Mapping[str, Path]) -> None:
    """Write golden.json, golden.bin and edgekit-selftest.js; nothing if they cannot hold an input's dtype.

    Args:
        folder: The folder for transformers.js.
        spec: Its model, as one graph.
        reference: The model's reference folder.
        files: The verified ONNX files in the folder, by precision.
    """
    # As bytes, a picture has a quarter of the size.
    inputs = tuple(replace(i, kind="image") if len(i.shape) == 4 and i.shape[1] == 3 else i for i in spec.inputs)
    spec = replace(spec, inputs=inputs)
    with closing(EagerRuntime(spec)) as model:
        cases = golden.choose_golden(spec, reference, model.run)
    if not cases.cases:
        return
    arrays = [a for case in cases.cases for a in (case.image, *case.inputs.values(), *case.expected.values())]
    if sum(array.nbytes for array in arrays if array is not None) > MOST:
        cases = replace(cases, cases=cases.cases[:1])
    limits = {"delegated": cases.limits("delegated", {})}
    for precision, path in files.items():
        with closing(OrtRuntime(path)) as runtime:
            limits[DTYPES[precision]] = cases.limits(precision, cases.largest_errors(runtime.run))
    picture = next((i for i in inputs if i.kind == "image"), None)
    more = {
        "files": {DTYPES[precision]: path.relative_to(folder).as_posix() for precision, path in files.items()},
        "picture": picture and {"name": picture.name, "low": picture.low, "high": picture.high},
    }
    golden.write_golden(folder, cases, limits, more)
    shutil.copyfile(MODULE, folder / MODULE.name)
