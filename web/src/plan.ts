/**
 * Plan: which backends and precisions to try, in which order.
 *
 * The runtime's own list of providers rescues only a missing GPU adapter. Here each rung is an attempt of its own:
 * WebGPU before WASM, the wanted precision before fp32, threads before none.
 */
import { type Capabilities, threadCount } from "./device";
import { BackendError, UsageError } from "./errors";
import { DTYPES, type Dtype } from "./manifest";
import type { Build, Device } from "./wire";

export type DeviceOption = "auto" | Device;
export type DtypeOption = "auto" | Dtype;

export interface Rung {
  readonly device: Device;
  readonly dtype: Dtype;
  readonly build: Build;
  readonly threads: number;
}

export interface Skipped {
  readonly device: Device;
  readonly dtype: Dtype | "auto";
  readonly code: string;
  readonly reason: string;
}

export interface Plan {
  readonly rungs: readonly Rung[];
  /** What was wanted and cannot be tried here at all. */
  readonly skipped: readonly Skipped[];
}

const DEVICES = ["auto", "webgpu", "wasm"] as const;

/** @throws UsageError for a name that does not exist, with the names that do. */
export function checkOptions(device: string, dtype: string): void {
  if (!DEVICES.includes(device as DeviceOption)) throw unknown("device", device, DEVICES);
  if (dtype !== "auto" && !DTYPES.includes(dtype as Dtype)) throw unknown("dtype", dtype, ["auto", ...DTYPES]);
}

/** The device of the first rung, known before the manifest is. @throws BackendError without WebAssembly. */
export function firstDevice(device: DeviceOption, has: Capabilities, asyncify = false): Device {
  if (!has.wasm) throw new BackendError("this browser has no WebAssembly: it is switched off or too old");
  if (device === "wasm" || !has.gpu || !(has.jspi || asyncify)) return "wasm";
  // A software adapter is slower than WASM by far; it is for tests, by name.
  return device === "webgpu" || !has.gpu.software ? "webgpu" : "wasm";
}

/**
 * @param asyncify - Whether the bundle has the runtime's build for WebGPU without JSPI.
 * @throws UsageError if the bundle has not the wanted precision.
 */
export function plan(
  device: DeviceOption,
  dtype: DtypeOption,
  has: Capabilities,
  available: readonly Dtype[],
  asyncify = false,
): Plan {
  if (dtype !== "auto" && !available.includes(dtype)) throw unknown("dtype", dtype, ["auto", ...available]);
  const skipped: Skipped[] = [];
  const rungs: Rung[] = [];
  if (firstDevice(device, has, asyncify) === "webgpu") {
    const build = has.jspi ? "jspi" : "asyncify";
    const f16 = has.gpu?.f16 ?? false;
    if (dtype === "fp16" && !f16) skipped.push(skip("fp16", "the GPU has no 16-bit floats in shaders (shader-f16)"));
    for (const d of order(dtype === "auto" ? (f16 ? "fp16" : "fp32") : dtype, available)) {
      if (d !== "fp16" || f16) rungs.push({ device: "webgpu", dtype: d, build, threads: 1 });
    }
  } else if (device === "webgpu") {
    skipped.push(skip(dtype, has.gpu ? "this browser lacks JavaScript promise integration (JSPI)" : "this browser gives no GPU adapter"));
  }
  const threads = threadCount(has);
  for (const d of order(dtype === "auto" ? "q8" : dtype, available)) {
    rungs.push({ device: "wasm", dtype: d, build: "wasm", threads });
    if (threads > 1) rungs.push({ device: "wasm", dtype: d, build: "wasm", threads: 1 });
  }
  return { rungs, skipped };
}

/** How far an attempt came. */
export type Stage = "start" | "fetch" | "open" | "selfTest";

/**
 * The rungs still worth trying after one failed.
 *
 * A backend that does not start, or hangs, is out (the device and its number of threads) in every precision; a file that
 * is missing or damaged, or a model that is refused or answers wrongly, puts out its precision.
 */
export function remaining(rungs: readonly Rung[], failed: Rung, stage: Stage, code: string): readonly Rung[] {
  const rest = rungs.slice(rungs.indexOf(failed) + 1);
  if (stage === "fetch") return rest.filter((r) => r.dtype !== failed.dtype);
  if (stage === "start" || code === "TIME_OUT" || code === "DEVICE_LOST") {
    return rest.filter((r) => r.device !== failed.device || r.threads !== failed.threads);
  }
  return rest.filter((r) => r.device !== failed.device || r.dtype !== failed.dtype);
}

function order(wanted: Dtype, available: readonly Dtype[]): Dtype[] {
  const first = [wanted, "fp32"] as const;
  return [...new Set<Dtype>([...first, ...available])].filter((d) => available.includes(d)).slice(0, 2);
}

function skip(dtype: DtypeOption, reason: string): Skipped {
  return { device: "webgpu", dtype, code: "BACKEND", reason };
}

function unknown(option: string, value: string, possible: readonly string[]): UsageError {
  return new UsageError(`the ${option} "${value}" is not to be had: possible are ${possible.map((p) => `"${p}"`).join(", ")}`);
}
