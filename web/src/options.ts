/** Options: what `load`, `preload` and `isCached` accept, validated. */
import { bundleFolder } from "./bundle.js";
import { type DeviceOption, type DtypeOption, type Candidate, checkOptions } from "./candidates.js";
import { type Capabilities, capabilities } from "./device.js";
import { quickerDevice } from "./device_choice.js";
import { environment } from "./environment.js";
import { UsageError } from "./errors.js";
import { Progress, type ProgressCallback } from "./progress.js";
import type { Device } from "./protocol.js";

export interface LoadOptions {
  readonly device?: DeviceOption;
  readonly dtype?: DtypeOption;
  readonly progress_callback?: ProgressCallback;
  readonly signal?: AbortSignal;
  /**
   * Check the device against the golden vectors: before use (true, the default), never (false), or "after" the first
   * answer, for which less is downloaded. `runner.checked` then tells, and if it fails, the next run falls back. On a GPU
   * "after" means before use, too.
   */
  readonly selfTest?: boolean | "after";
  /** Folder of the runtime's files; default `ort/` in the bundle. */
  readonly runtime?: string | URL;
  /** Time limit in milliseconds for each of: starting the backend, opening the model, one run (default 60,000). */
  readonly timeout?: number;
}

/** Options with their defaults, and what this browser can do. */
export interface ResolvedOptions {
  readonly device: DeviceOption;
  /** The device that was quicker at an earlier visit, if the user left the choice to the library. */
  readonly quicker: Device | undefined;
  readonly dtype: DtypeOption;
  readonly capabilities: Capabilities;
  /** URL of the folder with the runtime's files. */
  readonly runtime: string;
  readonly selfTest: boolean | "after";
  /** Milliseconds. */
  readonly timeout: number;
  readonly signal: AbortSignal | undefined;
  readonly progress: Progress;
  /** Backends that failed repeatedly: tried only where no other is left. */
  readonly avoid: readonly Pick<Candidate, "device" | "threads">[];
}

const TIMEOUT = 60_000; // ms
const OPTIONS = ["device", "dtype", "progress_callback", "signal", "selfTest", "runtime", "timeout"];

/**
 * Validate options and fill in the defaults.
 *
 * @throws UsageError for an unknown option or an invalid value.
 */
export async function resolveOptions(url: string | URL, options: LoadOptions): Promise<ResolvedOptions> {
  if (typeof (options as unknown) !== "object" || (options as unknown) === null) {
    throw new UsageError(`options must be an object, not ${JSON.stringify(options)}`);
  }
  const { device = "auto", dtype = "auto", signal, timeout = TIMEOUT, progress_callback: callback } = options;
  const unknownOption = Object.keys(options).find((name) => !OPTIONS.includes(name));
  if (unknownOption) throw new UsageError(`unknown option "${unknownOption}": possible options are ${OPTIONS.join(", ")}`);
  checkOptions(device, dtype);
  if (!(typeof timeout === "number" && timeout > 0)) {
    throw new UsageError(`timeout must be a positive number of milliseconds, not ${String(timeout)}`);
  }
  const { selfTest = true } = options;
  if (typeof selfTest !== "boolean" && (selfTest as unknown) !== "after") {
    throw new UsageError(`selfTest must be true, false or "after", not ${JSON.stringify(selfTest)}`);
  }
  if (callback !== undefined && typeof callback !== "function") throw new UsageError("progress_callback must be a function");
  signal?.throwIfAborted();
  const runtime = new URL(options.runtime ?? new URL("ort/", bundleFolder(url)), environment().base()).href;
  const has = await capabilities(device === "auto" || device === "webgpu", device === "webnn");
  const quicker = device === "auto" ? quickerDevice(bundleFolder(url), has) : undefined;
  return {
    device: quicker === "wasm" ? "wasm" : device,
    quicker,
    dtype,
    capabilities: has,
    runtime: runtime.endsWith("/") ? runtime : `${runtime}/`,
    selfTest,
    timeout,
    signal,
    progress: new Progress(callback),
    avoid: [],
  };
}
