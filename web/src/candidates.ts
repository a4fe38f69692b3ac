/**
 * Candidates: which combinations of device and precision to try, in which order.
 *
 * The runtime's own list of execution providers falls back only when there is no GPU adapter. Here each candidate is
 * tried in a worker of its own: WebGPU before WASM, the requested precision before fp32, multi-threaded before
 * single-threaded. Where the user chose neither, the two devices are timed once (fallback_chain.ts).
 */
import { type Capabilities, NO_JSPI, threadCount } from "./device.js";
import { BackendError, UsageError } from "./errors.js";
import { DTYPES, type Dtype } from "./manifest.js";
import type { Build, Device } from "./protocol.js";

export type DeviceOption = "auto" | Exclude<Device, "cpu">;
export type DtypeOption = "auto" | Dtype;

export interface Candidate {
  readonly device: Device;
  readonly dtype: Dtype;
  readonly build: Build;
  readonly threads: number;
}

/** A requested combination that this browser cannot run at all. */
export interface Unavailable {
  readonly device: Device;
  readonly dtype: DtypeOption;
  readonly code: string;
  readonly reason: string;
}

export interface CandidateOrder {
  readonly candidates: readonly Candidate[];
  readonly unavailable: readonly Unavailable[];
}

const DEVICES = ["auto", "webgpu", "webnn", "wasm"] as const;

/** @throws UsageError for an unknown device or dtype, with the possible values. */
export function checkOptions(device: string, dtype: string): void {
  if (!DEVICES.includes(device as DeviceOption)) {
    throw new UsageError(`unknown device "${device}": possible values are ${quoted(DEVICES)}`);
  }
  if (dtype !== "auto" && !DTYPES.includes(dtype as Dtype)) {
    throw new UsageError(`unknown dtype "${dtype}": possible values are ${quoted(["auto", ...DTYPES])}`);
  }
}

/** The device of the first candidate, known before the manifest is. @throws BackendError without WebAssembly. */
export function firstDevice(device: DeviceOption, capabilities: Capabilities, asyncify = false): Device {
  if (!capabilities.wasm) throw new BackendError("this browser has no WebAssembly: it is disabled, or the browser is too old");
  if (device === "webnn") return capabilities.webnn === "" ? "webnn" : "wasm";
  if (device === "wasm" || !capabilities.gpu || !(capabilities.jspi || asyncify)) return "wasm";
  // A software adapter is far slower than WASM; it is for tests, which request it by name.
  return device === "webgpu" || !capabilities.gpu.software ? "webgpu" : "wasm";
}

/**
 * The candidates in the order in which they are tried.
 *
 * @param available - Precisions of the bundle.
 * @param asyncify - Whether the bundle has the runtime's build for WebGPU without JSPI.
 * @throws UsageError if the bundle does not have the requested precision.
 */
export function orderCandidates(
  device: DeviceOption,
  dtype: DtypeOption,
  capabilities: Capabilities,
  available: readonly Dtype[],
  asyncify = false,
): CandidateOrder {
  if (dtype !== "auto" && !available.includes(dtype)) {
    throw new UsageError(`this bundle has no model for the dtype "${dtype}": possible values are ${quoted(["auto", ...available])}`);
  }
  const unavailable: Unavailable[] = [];
  const candidates: Candidate[] = [];
  if (device === "webnn") {
    const reason = capabilities.webnn ?? "this browser has no WebNN";
    if (reason) unavailable.push({ device, dtype, code: "BACKEND", reason });
    else for (const d of precisionOrder(dtype === "auto" ? "fp32" : dtype, available)) candidates.push({ device, dtype: d, build: "jspi", threads: 1 });
  } else if (firstDevice(device, capabilities, asyncify) === "webgpu") {
    const build = capabilities.jspi ? "jspi" : "asyncify";
    // WebGPU has no kernels for INT8: its operators would fall to the CPU one by one.
    const fits = available.filter((d) => d !== "q8" || (device === "webgpu" && dtype === "q8"));
    for (const d of precisionOrder(dtype === "auto" ? "fp16" : dtype, fits)) candidates.push({ device: "webgpu", dtype: d, build, threads: 1 });
  } else if (device === "webgpu") {
    const reason = capabilities.gpu
      ? NO_JSPI
      : "this browser provides no GPU adapter";
    unavailable.push(noWebgpu(dtype, reason));
  }
  const threads = threadCount(capabilities);
  for (const d of precisionOrder(dtype === "auto" ? "q8" : dtype, available)) {
    candidates.push({ device: "wasm", dtype: d, build: "wasm", threads });
    if (threads > 1) candidates.push({ device: "wasm", dtype: d, build: "wasm", threads: 1 });
  }
  return { candidates, unavailable };
}

/** The step of loading that a candidate has reached. */
export type LoadStep = "start" | "fetch" | "open" | "selfTest";

/**
 * The candidates still worth trying after one failed.
 *
 * A backend that does not start, or hangs, is excluded in every precision (its device with its thread count). A file
 * that is missing or damaged, or a model that is refused or gives wrong results, excludes its precision.
 */
export function remaining(candidates: readonly Candidate[], failed: Candidate, step: LoadStep, code: string): readonly Candidate[] {
  const rest = candidates.slice(candidates.indexOf(failed) + 1);
  if (step === "fetch") return rest.filter((c) => c.dtype !== failed.dtype);
  if (step === "start" || code === "TIME_OUT" || code === "DEVICE_LOST") {
    return rest.filter((c) => c.device !== failed.device || c.threads !== failed.threads);
  }
  return rest.filter((c) => c.device !== failed.device || c.dtype !== failed.dtype);
}

/** The requested precision and one alternative: fp32 where the bundle has it. */
function precisionOrder(requested: Dtype, available: readonly Dtype[]): Dtype[] {
  const first = [requested, "fp32"] as const;
  return [...new Set<Dtype>([...first, ...available])].filter((d) => available.includes(d)).slice(0, 2);
}

function noWebgpu(dtype: DtypeOption, reason: string): Unavailable {
  return { device: "webgpu", dtype, code: "BACKEND", reason };
}

function quoted(values: readonly string[]): string {
  return values.map((v) => `"${v}"`).join(", ");
}
