"""Write the parts that pages hold: `make pages`."""

from __future__ import annotations

from rendering import store
from rendering.sources import ROOT

for page in sorted((ROOT / "docs").glob("*.md")):
    page.write_text(store(page.read_text()))
