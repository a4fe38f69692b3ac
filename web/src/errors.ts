/**
 * The tree of errors. Every message is one sentence that names the URL or the value and what came instead.
 *
 *     EdgekitError
 *     ├── ManifestError    MANIFEST       the bundle's manifest is missing, damaged or of another schema
 *     ├── AssetError       ASSET_MISSING  a file of the bundle did not arrive
 *     ├── HashError        HASH_MISMATCH  a file arrived with another content than the manifest names
 *     ├── BackendError     BACKEND        the runtime did not start or broke
 *     ├── ShapeError       SHAPE          an input has another shape or type than the model takes
 *     ├── TimeOutError     TIME_OUT       a start or a run took longer than allowed
 *     ├── DeviceLostError  DEVICE_LOST    the GPU went away; the next run starts anew
 *     ├── SelfTestError    SELF_TEST      this device computes something else than the reference
 *     ├── ImageError       IMAGE          not an image, or one that is damaged, too large or unreadable
 *     ├── QueryError       QUERY          a query without a single known word
 *     └── UsageError       USAGE          an option that does not exist, a runner that was disposed
 */
export type Code =
  | "MANIFEST"
  | "ASSET_MISSING"
  | "HASH_MISMATCH"
  | "BACKEND"
  | "SHAPE"
  | "TIME_OUT"
  | "DEVICE_LOST"
  | "SELF_TEST"
  | "IMAGE"
  | "QUERY"
  | "USAGE";

export abstract class EdgekitError extends Error {
  abstract readonly code: Code;
  override get name(): string {
    return NAMES[this.code];
  }
}

export class ManifestError extends EdgekitError {
  readonly code = "MANIFEST";
}
export class AssetError extends EdgekitError {
  readonly code = "ASSET_MISSING";
}
export class HashError extends EdgekitError {
  readonly code = "HASH_MISMATCH";
}
export class BackendError extends EdgekitError {
  readonly code = "BACKEND";
}
export class ShapeError extends EdgekitError {
  readonly code = "SHAPE";
}
export class TimeOutError extends EdgekitError {
  readonly code = "TIME_OUT";
}
export class DeviceLostError extends EdgekitError {
  readonly code = "DEVICE_LOST";
}
export class SelfTestError extends EdgekitError {
  readonly code = "SELF_TEST";
}
export class ImageError extends EdgekitError {
  readonly code = "IMAGE";
}
export class QueryError extends EdgekitError {
  readonly code = "QUERY";
}
export class UsageError extends EdgekitError {
  readonly code = "USAGE";
}

const CLASSES: Record<Code, new (message: string) => EdgekitError> = {
  MANIFEST: ManifestError,
  ASSET_MISSING: AssetError,
  HASH_MISMATCH: HashError,
  BACKEND: BackendError,
  SHAPE: ShapeError,
  TIME_OUT: TimeOutError,
  DEVICE_LOST: DeviceLostError,
  SELF_TEST: SelfTestError,
  IMAGE: ImageError,
  QUERY: QueryError,
  USAGE: UsageError,
};

// Class names do not survive minification; people read them in consoles and reports.
const NAMES: Record<Code, string> = {
  MANIFEST: "ManifestError",
  ASSET_MISSING: "AssetError",
  HASH_MISMATCH: "HashError",
  BACKEND: "BackendError",
  SHAPE: "ShapeError",
  TIME_OUT: "TimeOutError",
  DEVICE_LOST: "DeviceLostError",
  SELF_TEST: "SelfTestError",
  IMAGE: "ImageError",
  QUERY: "QueryError",
  USAGE: "UsageError",
};

/** An error as it crosses from the worker to the page. */
export interface Told {
  readonly code: Code;
  readonly message: string;
}

/** What to send of anything that was thrown; what is not ours came from the runtime. */
export function tell(thrown: unknown): Told {
  if (thrown instanceof EdgekitError) return { code: thrown.code, message: thrown.message };
  return { code: "BACKEND", message: `the runtime failed: ${sentence(thrown)}` };
}

/** The error that was sent, as the class that it was. */
export function revive(told: Told): EdgekitError {
  return new CLASSES[told.code](told.message);
}

/** The text of anything that was thrown. */
export function sentence(thrown: unknown): string {
  const text = thrown instanceof Error ? thrown.message : String(thrown);
  return text.split("\n")[0] ?? text;
}
