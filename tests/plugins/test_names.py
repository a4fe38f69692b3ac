"""The functions that plugins offer from Python are imported when they are first used."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

NAMES = {
    "edgekit_inspect": ("explain", "profile"),
    "edgekit_stores": ("builds", "pull", "push"),
    "edgekit_check": ("check",),
}


@pytest.mark.parametrize("package", NAMES)
def test_functions_are_names_of_the_package(package: str) -> None:
    module, api = importlib.import_module(package), importlib.import_module(f"{package}.api")
    assert [getattr(module, name) for name in NAMES[package]] == [getattr(api, name) for name in NAMES[package]]
    assert set(NAMES[package]) <= set(module.__all__)
    with pytest.raises(AttributeError, match=package):
        module.no_such_name  # noqa: B018


@pytest.mark.parametrize("package", NAMES)
def test_importing_the_package_is_quick(package: str) -> None:
    code = f"import sys, {package}; print([m for m in ('torch', 'numpy', 'onnx', 'fsspec') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
