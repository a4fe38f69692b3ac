"""Core ML's protobuf classes, without importing coremltools around them.

`import coremltools` takes its converters, torch and scikit-learn along: 10 s, and a page of warnings. Its `proto`
folder needs none of them and only uses relative imports, so it is imported on its own, as a package of another name;
where coremltools is loaded already its own classes are used (protobuf makes them one and the same).
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from edgekit.errors import DependencyError

Message = Any
"""A protobuf message: coremltools ships no types for its classes."""

_ALONE = "edgekit_coreml_proto"


def parse(data: bytes) -> Message:
    """The `Model` protobuf in some bytes.

    Raises:
        ValueError: If they are none.
        DependencyError: If coremltools is not installed.
    """
    model = importlib.import_module(f"{_package()}.Model_pb2").Model()
    failure = importlib.import_module("google.protobuf.message").DecodeError
    try:
        model.ParseFromString(data)
    except failure as error:
        raise ValueError(str(error)) from error
    return model


def _package() -> str:
    if "coremltools.proto" in sys.modules:
        return "coremltools.proto"
    if _ALONE not in sys.modules:
        found = importlib.util.find_spec("coremltools")
        if found is None or found.origin is None:
            raise DependencyError("reading a Core ML package needs coremltools: pip install 'edgekit[coreml]'")
        folder = Path(found.origin).parent / "proto"
        spec = importlib.util.spec_from_file_location(
            _ALONE, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            raise DependencyError(f"coremltools in '{folder.parent}' has no protobuf classes: install it again")
        module = importlib.util.module_from_spec(spec)
        sys.modules[_ALONE] = module
        spec.loader.exec_module(module)
    return _ALONE
