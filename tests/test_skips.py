from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

TESTS = """
import pytest

def test_silent():
    pytest.skip("not here")

@pytest.mark.skip(reason="")
def test_marked():
    pass

def test_library():
    pytest.importorskip("library_that_nobody_has")

def test_told():
    pytest.skip("no 'zipalign' on PATH: apt-get install zipalign")

@pytest.mark.skipif(True, reason="takes minutes: set EDGEKIT_SLOW=1")
def test_slow():
    pass

@pytest.mark.xfail(reason="known")
def test_known():
    assert False
"""


def test_a_skip_that_names_no_remedy_fails(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_module.py").write_text('import pytest\npytest.skip("no reason", allow_module_level=True)\n')
    command = [sys.executable, "-m", "pytest", "-p", "tests.skips", "-p", "no:cacheprovider", "-rA"]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "--continue-on-collection-errors", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert re.search(r"2 failed, 2 skipped, 1 xfailed, 2 errors", done.stdout), done.stdout
    assert "'Skipped: not here' does not say what to install" in done.stdout
    refused = set(re.findall(r"(?:FAILED|ERROR) \S*/(test_some\.py::\w+|test_module\.py)", done.stdout))
    names = ("test_silent", "test_marked", "test_library")
    assert refused == {"test_module.py", *(f"test_some.py::{name}" for name in names)}
