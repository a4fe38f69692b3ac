/** Engine: which device and precision runs, whether it was checked, what was tried before, how fast it is. */
import { type BenchReport, type Info, type Manifest, type Runner, type SelfTestReport, capabilities } from "../src/index";
import { describe, element, make } from "./element";

export const NAMES: Readonly<Record<string, string>> = { wasm: "WASM", webgpu: "WebGPU", q8: "int8", fp16: "fp16", fp32: "fp32" };

/** Tell the switches what cannot be had here, and why. */
export async function limitSwitches(manifest: Manifest | undefined): Promise<void> {
  const has = await capabilities();
  const asyncify = manifest?.files.some((f) => f.path.includes("asyncify")) ?? false;
  if (!has.gpu) disable("device", "webgpu", "This browser gives no GPU");
  else if (!has.jspi && !asyncify) disable("device", "webgpu", "This browser lacks JavaScript promise integration");
}

/** Sizes beside the precisions, and off with those that the bundle lacks. */
export function limitPrecisions(manifest: Manifest): void {
  for (const dtype of ["fp32", "fp16", "q8"] as const) {
    const variant = manifest.variants.find((v) => v.name === dtype);
    const size = manifest.files.find((f) => f.path === variant?.path)?.size;
    for (const group of ["dtype", "compare"]) {
      const label = element(`#${group} input[value="${dtype}"] + span`, HTMLElement);
      if (size === undefined) disable(group, dtype, "Not in this bundle");
      else if (label.children.length === 0) label.append(make("small", `${(size / 1e6).toFixed(1)} MB`));
    }
  }
}

/** Without counts there are no tokens to show. */
export function limitViews(manifest: Manifest): void {
  if (!manifest.outputs.some((o) => o.role === "counts")) disable("views", "tokens", "This model counts no tokens");
}

function disable(group: string, value: string, why: string): void {
  const input = element(`#${group} input[value="${value}"]`, HTMLInputElement);
  input.disabled = true;
  input.closest("label")?.setAttribute("title", why);
}

/** One line about what runs. */
export function label(info: Pick<Info, "device" | "dtype">, ms?: number): string {
  const time = ms === undefined ? "" : ` · ${ms < 100 ? ms.toFixed(1) : ms.toFixed(0)} ms`;
  return `${NAMES[info.device] ?? info.device} · ${NAMES[info.dtype] ?? info.dtype}${time}`;
}

/** The pill in the header. */
export function pill(text: string, state: "loading" | "good" | "warn" | "bad"): void {
  element("#pill", HTMLElement).dataset.state = state;
  const shown = element("#pill-text", HTMLElement);
  if (shown.textContent !== text) shown.textContent = text;
}

/** The pill says what runs, and warns where something else was wanted. */
export function pillRunning(info: Info, ms?: number): void {
  pill(label(info, ms), info.fallbacks.length > 0 ? "warn" : "good");
}

export function showInfo(runner: Runner): void {
  const { info } = runner;
  const rows: [string, string][] = [
    ["Runs on", device(info)],
    ["Precision", NAMES[info.dtype] ?? info.dtype],
    ["Model", `${info.name}, ${info.fromCache ? "kept on this device" : "downloaded"}`],
    ["Runtime", `onnxruntime-web ${info.version}`],
    ["Ready after", `${(info.timings.total / 1000).toFixed(2)} s`],
  ];
  describe(element("#facts", HTMLDListElement), rows);
  element("#fallbacks", HTMLElement).replaceChildren(
    ...info.fallbacks.map((f) => make("li", `${NAMES[f.device] ?? f.device} ${NAMES[f.dtype] ?? f.dtype} is not in use: ${f.reason}.`)),
  );
  if (info.selfTest) showCheck(info.selfTest);
  for (const id of ["again", "measure", "forget"]) element(`#${id}`, HTMLButtonElement).disabled = false;
}

function device({ device, threads, adapter }: Info): string {
  if (device === "wasm") return `WebAssembly, ${String(threads)} ${threads === 1 ? "thread" : "threads"}`;
  const named = adapter ? [adapter.vendor, adapter.architecture || adapter.description].filter(Boolean).join(" ") : "";
  return `WebGPU${named ? `, ${named}` : ""}`;
}

export function showCheck(report: SelfTestReport): void {
  const rows = report.cases.map((c) => {
    const cells = [c.name, c.maxAbs.toExponential(1), c.limit.toExponential(1), c.pass ? "passed" : c.reason];
    const row = make("tr", cells.map((text, i) => make(i === 0 ? "th" : "td", text, i === 0 ? { scope: "row" } : {})));
    row.dataset.pass = String(c.pass);
    return row;
  });
  element("#check tbody", HTMLElement).replaceChildren(...rows);
}

export function showBench(report: BenchReport): void {
  const ms = (value: number): string => value.toFixed(1);
  element("#measured", HTMLElement).textContent =
    `${NAMES[report.device] ?? report.device} ${NAMES[report.dtype] ?? report.dtype}: median ${ms(report.p50)} ms, ` +
    `95 of 100 under ${ms(report.p95)} ms, ${String(report.runs)} runs`;
}

/** How two results differ, in one line. */
export function difference(a: { relevance: Float32Array; indices: Int32Array }, b: typeof a, names: readonly [string, string]): string {
  let most = 0;
  a.relevance.forEach((value, i) => (most = Math.max(most, Math.abs(value - (b.relevance[i] ?? 0)))));
  const same = new Set(a.indices);
  const shared = [...b.indices].filter((i) => same.has(i)).length;
  return `${names[0]} and ${names[1]}: largest difference of a score ${most.toFixed(4)}, ${String(shared)} of ${String(a.indices.length)} chosen patches the same`;
}

