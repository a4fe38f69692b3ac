"""Every precision against fp32 on the visitor's own device, as plots, and as the table behind them."""

from __future__ import annotations

import re

import pytest

from tests.web.conftest import DESKTOP, Opener, ready
from tests.web.test_page import AXE, violations

LEFT, SIDE = 34, 200  # units of a scatter plot's view box: where its square begins, and its side

# What the library answers for the sample: the largest differences from fp32, and the patches that fp32 selects too.
RIGHT = """async () => {
  const { load } = await import(new URL("edgekit.js", location.href).href);
  const image = await createImageBitmap(await (await fetch("samples/000.png")).blob());
  const answers = {};
  for (const dtype of ["fp32", "q8"]) {
    const runner = await load("./", { device: "wasm", dtype });
    const { relevance, indices } = await runner.run({ image, query: "red circle", size: runner.fittingSize(image) });
    answers[dtype] = { relevance: [...relevance], indices: [...indices] };
    await runner.dispose();
  }
  const { fp32, q8 } = answers;
  return [Math.max(...q8.relevance.map((value, i) => Math.abs(value - fp32.relevance[i]))).toPrecision(2),
    `${q8.indices.filter((i) => fp32.indices.includes(i)).length} of ${fp32.indices.length}`,
    fp32.relevance, q8.relevance];
}"""
POINTS = """(svg) => [...svg.querySelectorAll(".point")]
  .map((point) => ["cx", "cy"].map((name) => Number(point.getAttribute(name))))"""


@pytest.mark.nightly
def test_precisions_are_compared_and_timed(open_page: Opener, url: str) -> None:
    page = open_page("manifest.json", bypass_csp=True, color_scheme="dark", service_workers="block", **DESKTOP)
    page.route("**/model_fp16.onnx", lambda route: route.abort())
    page.goto(f"{url}?device=wasm&dtype=fp32")  # int8, which has fp16's bytes here, is not stored
    ready(page)
    assert page.locator("#precisions").is_hidden()
    page.get_by_role("button", name="Measure all precisions").click()
    page.locator("#panel-message", has_text="Fastest here: ").wait_for()
    said = r"Fastest here: WASM (int8|fp32), median [\d.]+ ms(; fp32 takes [\d.]+ times as long)?\."
    assert re.fullmatch(said, page.inner_text("#panel-message"))
    page.locator("#precisions summary").press("Enter")
    rows = [row.split("\t") for row in page.locator("#precision-table tbody tr").all_inner_texts()]
    places = [f"{device} {dtype}" for device in ("WASM", "WebGPU", "WebNN") for dtype in ("fp32", "fp16", "int8")]
    assert [row[0] for row in rows] == places
    assert "model_fp16.onnx cannot be fetched" in rows[1][2]
    software, half = "Not run: the GPU is emulated by software", "Not run: the GPU does not support 16-bit floats"
    # Some versions of Chromium emulate 16-bit floats too.
    reasons = (software,), (half, software), (software,)
    assert all(row[2].startswith(why) for row, why in zip(rows[3:6], reasons, strict=True)), rows
    assert [row[2] for row in rows[6:]] == 3 * ["Not run: this browser has no WebNN"]
    assert (
        page.locator("label", has=page.locator('input[value="webnn"]')).get_attribute("title")
        == "This browser has no WebNN"
    )
    timed = rows[0], rows[2]
    assert all(re.fullmatch(r"[\d.]+ ms", cell) for row in timed for cell in row[2:4])
    largest, shared, fp32, int8 = page.evaluate(RIGHT)
    assert [row[4:] for row in timed] == [["–", "–"], [largest, shared]]
    plot = page.locator("#precision-plots svg.scatter")
    assert plot.get_attribute("aria-label") == (
        f"WASM fp32 and WASM int8: 196 values of relevance differ by at most {largest}; "
        f"{shared} selected patches are the same"
    )
    low, high = min(0.0, *fp32, *int8), max(0.0, *fp32, *int8)
    points = plot.evaluate(POINTS)
    assert len(points) == len(fp32) == 196
    for (x, y), base, other in zip(points, fp32, int8, strict=True):
        assert abs(x - LEFT - SIDE * (base - low) / (high - low)) < 0.1
        assert abs(SIDE - y - SIDE * (other - low) / (high - low)) < 0.1
    bars = page.locator("#precision-plots svg.latency")
    assert bars.locator("rect").count() == len(timed)
    for row in timed:
        assert f"{row[0]} {row[2]}, 95th percentile {row[3]}" in (bars.get_attribute("aria-label") or "")
    page.add_script_tag(path=str(AXE))
    assert violations(page) == []
    page.set_viewport_size({"width": 320, "height": 640})
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
