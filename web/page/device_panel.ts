/** DevicePanel: device and precision in use, self-test results, fallbacks and speed. */
import { type Info, type Manifest, type Runner, type SelfTestReport, capabilities, verifiedDtypes } from "../src/index";
import { createElement, element, fillDescriptionList } from "./dom";

export const DISPLAY_NAMES: Readonly<Record<string, string>> = { wasm: "WASM", webgpu: "WebGPU", webnn: "WebNN", q8: "int8", fp16: "fp16", fp32: "fp32" };

/** Disable the devices that this browser does not support, with the reason. */
export async function disableUnsupportedDevices(manifest: Manifest | undefined): Promise<void> {
  const { gpu, jspi, webnn } = await capabilities(true, true);
  const asyncify = manifest?.files.some((f) => f.path.includes("asyncify")) ?? false;
  if (!gpu) disable("device", "webgpu", "This browser provides no GPU adapter");
  if (webnn) disable("device", "webnn", `${webnn.charAt(0).toUpperCase()}${webnn.slice(1)}`);
  if (gpu && !jspi && !asyncify) disable("device", "webgpu", "This browser does not support JavaScript promise integration (JSPI)");
}

/** Show the size of each precision, and disable those that the bundle does not have. */
export function disableMissingPrecisions(manifest: Manifest): void {
  for (const dtype of ["fp32", "fp16", "q8"] as const) {
    const variant = manifest.bundle.variants.find((v) => v.name === dtype);
    const size = manifest.files.find((f) => f.path === variant?.path)?.size;
    for (const group of ["dtype", "compare"]) {
      const label = element(`#${group} input[value="${dtype}"] + span`, HTMLElement);
      if (size === undefined) disable(group, dtype, "Not in this bundle");
      else if (label.children.length === 0) {
        const state = verifiedDtypes(manifest).includes(dtype) ? "" : " · not verified";
        label.append(createElement("small", `${(size / 1e6).toFixed(1)} MB${state}`));
      }
    }
  }
}

/** Disable the token view for a model without token budgets. */
export function disableMissingViews(manifest: Manifest): void {
  if (!manifest.outputs.some((o) => o.role === "counts")) disable("views", "tokens", "This model has no token budgets");
}

function disable(group: string, value: string, reason: string): void {
  const input = element(`#${group} input[value="${value}"]`, HTMLInputElement);
  input.disabled = true;
  input.closest("label")?.setAttribute("title", reason);
}

/** Device, precision and time of a run, in one line. */
export function backendLabel(info: Pick<Info, "device" | "dtype">, ms?: number): string {
  const time = ms === undefined ? "" : ` · ${ms < 100 ? ms.toFixed(1) : ms.toFixed(0)} ms`;
  return `${DISPLAY_NAMES[info.device] ?? info.device} · ${DISPLAY_NAMES[info.dtype] ?? info.dtype}${time}`;
}

/** Set the status in the header. */
export function setStatus(text: string, state: "loading" | "good" | "warn" | "bad"): void {
  element("#status", HTMLElement).dataset.state = state;
  const shown = element("#status-text", HTMLElement);
  if (shown.textContent !== text) shown.textContent = text;
}

/** Show what runs in the header; a warning where a fallback or an unverified precision is in use. */
export function setRunningStatus(info: Info, ms?: number): void {
  const label = info.verified ? backendLabel(info, ms) : `${backendLabel(info, ms)} · not verified`;
  setStatus(label, info.fallbacks.length > 0 || !info.verified ? "warn" : "good");
}

export function showInfo(runner: Runner): void {
  const { info } = runner;
  const rows: [string, string][] = [
    ["Runs on", deviceName(info)],
    ["Precision", DISPLAY_NAMES[info.dtype] ?? info.dtype],
    ["Model", `${info.name}, ${info.fromCache ? "stored on this device" : "downloaded"}`],
    ["Runtime", `onnxruntime-web ${info.version}`],
    ["Load time", `${(info.timings.total / 1000).toFixed(2)} s`],
  ];
  fillDescriptionList(element("#backend-info", HTMLDListElement), rows);
  element("#fallbacks", HTMLElement).replaceChildren(
    ...info.fallbacks.map((f) => createElement("li", `${DISPLAY_NAMES[f.device] ?? f.device} ${DISPLAY_NAMES[f.dtype] ?? f.dtype} was not used: ${f.reason}.`)),
  );
  if (info.selfTest) showSelfTest(info.selfTest);
  for (const id of ["test-again", "measure-precisions", "clear-cache"]) element(`#${id}`, HTMLButtonElement).disabled = false;
}

function deviceName({ device, threads, adapter }: Info): string {
  if (device === "wasm") return `WebAssembly, ${String(threads)} ${threads === 1 ? "thread" : "threads"}`;
  const named = adapter ? [adapter.vendor, adapter.architecture || adapter.description].filter(Boolean).join(" ") : "";
  return device === "webnn" ? "WebNN; what it lacks, on WebAssembly" : `WebGPU${named ? `, ${named}` : ""}`;
}

export function showSelfTest(report: SelfTestReport): void {
  const rows = report.cases.map((c) => {
    const cells = [c.name, c.error.toExponential(1), c.limit.toExponential(1), c.pass ? "passed" : c.reason];
    const row = createElement("tr", cells.map((text, i) => createElement(i === 0 ? "th" : "td", text, i === 0 ? { scope: "row" } : {})));
    row.dataset.pass = String(c.pass);
    return row;
  });
  element("#self-test tbody", HTMLElement).replaceChildren(...rows);
}

/** Show a message below the buttons of the panel. */
export function showMessage(text: string): void {
  element("#panel-message", HTMLElement).textContent = text;
}

/** The difference between two results, in one line. */
export function describeDifference(a: { relevance: Float32Array; indices: Int32Array }, b: typeof a, names: readonly [string, string]): string {
  let largest = 0;
  a.relevance.forEach((value, i) => (largest = Math.max(largest, Math.abs(value - (b.relevance[i] ?? 0)))));
  const selected = new Set(a.indices);
  const shared = [...b.indices].filter((i) => selected.has(i)).length;
  return `${names[0]} and ${names[1]}: largest score difference ${largest.toFixed(4)}, ${String(shared)} of ${String(a.indices.length)} selected patches are the same`;
}

