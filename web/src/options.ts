/** Options: what `load` and its kin may be asked for, checked. */
import { folder } from "./bundle";
import { capabilities } from "./device";
import { UsageError } from "./errors";
import type { Climb } from "./ladder";
import { type DeviceOption, type DtypeOption, checkOptions } from "./plan";
import { Progress, type ProgressCallback } from "./progress";

export interface LoadOptions {
  readonly device?: DeviceOption;
  readonly dtype?: DtypeOption;
  readonly progress_callback?: ProgressCallback;
  readonly signal?: AbortSignal;
  /** Check the device against the golden vectors before use (default true). */
  readonly selfTest?: boolean;
  /** Folder of the runtime's files; default `ort/` in the bundle. */
  readonly runtime?: string | URL;
  /** Milliseconds that a start, an opening or a run may take (default 60,000). */
  readonly timeout?: number;
}

const TIMEOUT = 60_000; // ms
const OPTIONS = ["device", "dtype", "progress_callback", "signal", "selfTest", "runtime", "timeout"];

/**
 * Options -> what a climb needs.
 *
 * @throws UsageError for an option that does not exist, or that is something else than it must be.
 */
export async function prepare(url: string | URL, options: LoadOptions): Promise<Climb> {
  if (typeof (options as unknown) !== "object" || (options as unknown) === null) {
    throw new UsageError(`options are an object, not ${JSON.stringify(options)}`);
  }
  const { device = "auto", dtype = "auto", signal, timeout = TIMEOUT, progress_callback: callback } = options;
  const strange = Object.keys(options).find((name) => !OPTIONS.includes(name));
  if (strange) throw new UsageError(`there is no option "${strange}": possible are ${OPTIONS.join(", ")}`);
  checkOptions(device, dtype);
  if (!(typeof timeout === "number" && timeout > 0)) throw new UsageError(`timeout is milliseconds, not ${String(timeout)}`);
  if (callback !== undefined && typeof callback !== "function") throw new UsageError("progress_callback is a function");
  signal?.throwIfAborted();
  const runtime = new URL(options.runtime ?? new URL("ort/", folder(url)), globalThis.location.href).href;
  return {
    device,
    dtype,
    has: await capabilities(device !== "wasm"),
    runtime: runtime.endsWith("/") ? runtime : `${runtime}/`,
    selfTest: options.selfTest ?? true,
    timeout,
    signal,
    progress: new Progress(callback),
    avoid: [],
  };
}
