/** PrecisionPlots: the answers of two precisions against each other, and how long each takes, as SVG. */
import { DISPLAY_NAMES } from "./device_panel";
import { createSvg } from "./dom";
import { type Answer, type Measured, apart } from "./precisions";

const SIDE = 200; // of the square of a scatter plot, in units of its view box
const [LEFT, BELOW] = [34, 34]; // room for the labels of its axes
const MOST_POINTS = 1500; // more are thinned out
const [ROW, BARS, NAMES, NUMBERS] = [38, 120, 80, 62]; // of the plot of latencies: heights and widths

/** Values of one precision, across, against those of another one, upwards; on the line both are the same. */
export function scatterPlot(base: Answer, other: Answer, names: readonly [string, string]): SVGSVGElement {
  const [low, high] = range([...base.values, ...other.values]);
  const at = (value: number): number => (SIDE * (value - low)) / (high - low || 1);
  const step = Math.max(1, Math.ceil(base.values.length / MOST_POINTS));
  const points = base.values.flatMap((value, i) => {
    const against = other.values[i] ?? NaN;
    if (i % step !== 0 || !Number.isFinite(value) || !Number.isFinite(against)) return [];
    return [createSvg("circle", { class: "point", cx: round(LEFT + at(value)), cy: round(SIDE - at(against)), r: "2.6" })];
  });
  const label = (text: string, x: number, y: number, anchor: string): SVGElement => createSvg("text", { x: String(x), y: String(y), "text-anchor": anchor }, text);
  const ends = [low, high].map((value) => value.toPrecision(2).replace(/\.?0+$/, ""));
  return createSvg(
    "svg",
    { class: "scatter", role: "img", viewBox: `-4 -8 ${String(LEFT + SIDE + 12)} ${String(SIDE + BELOW + 8)}`, "aria-label": scatterWords(base, other, names) },
    [
      createSvg("path", { class: "frame", d: `M${String(LEFT)} 0V${String(SIDE)}h${String(SIDE)}` }),
      createSvg("path", { class: "same", d: `M${String(LEFT)} ${String(SIDE)}l${String(SIDE)}-${String(SIDE)}` }),
      ...points,
      label(ends[0] ?? "", LEFT, SIDE + 14, "start"),
      label(ends[1] ?? "", LEFT + SIDE, SIDE + 14, "end"),
      label(names[0], LEFT + SIDE / 2, SIDE + 27, "middle"),
      label(ends[0] ?? "", LEFT - 5, SIDE, "end"),
      label(ends[1] ?? "", LEFT - 5, 9, "end"),
      createSvg("text", { "text-anchor": "middle", transform: `translate(10 ${String(SIDE / 2)}) rotate(-90)` }, names[1]),
    ],
  );
}

/** What a scatter plot shows, in a sentence. */
export function scatterWords(base: Answer, other: Answer, [one, two]: readonly [string, string]): string {
  const { largest, shared } = apart(base, other);
  const patches = base.selected.length > 0 ? `; ${String(shared)} of ${String(base.selected.length)} selected patches are the same` : "";
  return `${one} and ${two}: ${String(base.values.length)} values of ${base.name} differ by at most ${largest.toPrecision(2)}${patches}`;
}

/** A bar for the median of each, and a line to the 95th percentile. */
export function latencyPlot(measured: readonly Measured[]): SVGSVGElement {
  const timed = measured.flatMap((one) => (one.speed ? [{ name: nameOf(one), ...one.speed }] : []));
  const longest = Math.max(...timed.map(({ p95 }) => p95));
  const x = (ms: number): number => NAMES + (BARS * ms) / longest;
  const rows = timed.flatMap(({ name, p50, p95 }, i) => {
    const middle = ROW * i + ROW / 2;
    return [
      createSvg("text", { x: String(NAMES - 8), y: String(middle + 4), "text-anchor": "end" }, name),
      createSvg("rect", { class: "bar-of", x: String(NAMES), y: String(middle - 11), width: round(x(p50) - NAMES), height: "22", rx: "2" }),
      createSvg("path", { class: "spread", d: `M${round(x(p50))} ${String(middle)}H${round(x(p95))}m0-4v8` }),
      createSvg("text", { x: round(x(p95) + 6), y: String(middle + 4) }, `${p50.toFixed(1)} ms`),
    ];
  });
  const said = timed.map(({ name, p50, p95 }) => `${name} ${p50.toFixed(1)} ms, 95th percentile ${p95.toFixed(1)} ms`).join("; ");
  const size = `0 0 ${String(NAMES + BARS + NUMBERS)} ${String(ROW * timed.length)}`;
  return createSvg("svg", { class: "latency", role: "img", viewBox: size, "aria-label": `Median time of a run: ${said}` }, rows);
}

export function nameOf({ device, dtype }: Pick<Measured, "device" | "dtype">): string {
  return `${DISPLAY_NAMES[device] ?? device} ${DISPLAY_NAMES[dtype] ?? dtype}`;
}

function range(values: readonly number[]): readonly [number, number] {
  return values.filter(Number.isFinite).reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [0, 0]);
}

function round(value: number): string {
  return value.toFixed(1);
}
