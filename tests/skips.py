"""A pytest plug-in: a skip says what to install, or it fails. What is skipped in silence is a test that nobody has."""

from __future__ import annotations

import re
from collections.abc import Generator
from importlib import util

import pytest

REMEDY = re.compile(r"\binstall|\bnpm ci\b|\bedgekit env add\b|needs a CUDA device|\bset EDGEKIT_\w+=")
NO_CUDA = "needs a CUDA device: run it on a host with an NVIDIA GPU and a CUDA build of torch"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_silence(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_silence(report)
    return report


def _refuse_silence(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not REMEDY.search(reason):
        report.outcome = "failed"
        report.longrepr = f"'{reason}' does not say what to install or to set, so that this test runs"


def no_chromium() -> str:
    """Why there is no browser to drive, in a sentence; empty where there is one."""
    from edgekit.errors import NotVerifiedHere
    from edgekit_targets.web.browser import NO_PLAYWRIGHT, find_chromium, launch

    if util.find_spec("playwright") is None:
        return NO_PLAYWRIGHT
    if find_chromium():
        return ""
    try:
        driver, browser = launch()
    except NotVerifiedHere as missing:
        return str(missing)
    browser.close()
    driver.stop()
    return ""
