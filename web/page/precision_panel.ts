/** PrecisionPanel: plots of all precisions on this device, and the table behind them. */
import { DISPLAY_NAMES } from "./device_panel";
import { createElement, element } from "./dom";
import { latencyPlot, nameOf, scatterPlot, scatterWords } from "./precision_plots";
import { type Measured, apart } from "./precisions";

const COLUMNS = ["Runs on", "Model", "Median", "95th percentile", "Largest difference from fp32", "Same selected patches"];

/** Show what was measured. @returns What it comes to, in a sentence. */
export function showPrecisions(measured: readonly Measured[]): string {
  const base = measured.find(({ dtype, answer }) => dtype === "fp32" && answer);
  const others = measured.filter((one) => one !== base);
  const scatters = others.flatMap((one) => {
    if (!base?.answer || !one.answer) return [];
    const names = [nameOf(base), nameOf(one)] as const;
    return [createElement("figure", [scatterPlot(base.answer, one.answer, names), createElement("figcaption", scatterWords(base.answer, one.answer, names))])];
  });
  const timed = measured.some(({ speed }) => speed);
  const latency = timed ? [createElement("figure", [latencyPlot(measured), createElement("figcaption", "Median time of a run, without reading the picture; the line ends at the 95th percentile")])] : [];
  element("#precision-plots", HTMLElement).replaceChildren(...latency, ...scatters);
  fillTable(measured, base);
  element("#precisions", HTMLElement).hidden = false;
  return summary(measured);
}

function fillTable(measured: readonly Measured[], base: Measured | undefined): void {
  const rows = measured.map((one) => {
    const name = createElement("th", nameOf(one), { scope: "row" });
    const size = createElement("td", `${(one.size / 1e6).toFixed(1)} MB`);
    if (!one.answer || !one.speed) {
      const why = createElement("td", `Not run: ${one.reason ?? ""}`, { colspan: String(COLUMNS.length - 2) });
      return createElement("tr", [name, size, why]);
    }
    const { p50, p95 } = one.speed;
    const far = base?.answer && one !== base ? apart(base.answer, one.answer) : undefined;
    const same = far && one.answer.selected.length > 0 ? `${String(far.shared)} of ${String(one.answer.selected.length)}` : "–";
    const cells = [`${p50.toFixed(1)} ms`, `${p95.toFixed(1)} ms`, far ? far.largest.toPrecision(2) : "–", same];
    return createElement("tr", [name, size, ...cells.map((text) => createElement("td", text))]);
  });
  const head = createElement("tr", COLUMNS.map((column) => createElement("th", column, { scope: "col" })));
  element("#precision-table", HTMLTableElement).replaceChildren(
    createElement("caption", "Each precision in this browser, asked the same picture"),
    createElement("thead", [head]),
    createElement("tbody", rows),
  );
}

function summary(measured: readonly Measured[]): string {
  const timed = measured.flatMap((one) => (one.speed ? [{ name: nameOf(one), dtype: one.dtype, ms: one.speed.p50 }] : []));
  const [first] = [...timed].sort((a, b) => a.ms - b.ms);
  if (!first) return "No precision could be measured.";
  const slower = timed.find(({ dtype }) => dtype === "fp32");
  const ratio = slower && slower.name !== first.name ? `; ${DISPLAY_NAMES.fp32 ?? ""} takes ${(slower.ms / first.ms).toFixed(1)} times as long` : "";
  return `Fastest here: ${first.name}, median ${first.ms.toFixed(1)} ms${ratio}.`;
}
