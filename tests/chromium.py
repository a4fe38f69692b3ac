"""Chromium, which browser tests drive."""

from __future__ import annotations

import os
from importlib import util


def no_chromium() -> str:
    """Return why no browser can be driven, in a sentence; empty if one can."""
    from edgekit.errors import NotVerifiedHere
    from edgekit_targets.web.browser import NO_PLAYWRIGHT, VARIABLE, find_chromium, launch

    if os.environ.get(VARIABLE) == "none":
        return f"runs in a browser, and {VARIABLE} is 'none': name a Chromium"
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
