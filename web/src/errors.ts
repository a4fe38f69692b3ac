/**
 * The classes of errors. Each message is one sentence that names the URL or the value, and what was expected.
 *
 *     EdgekitError
 *     ├── ManifestError    MANIFEST       the manifest is invalid or has another schema version
 *     ├── AssetError       ASSET_MISSING  a file of the bundle cannot be fetched
 *     ├── HashError        HASH_MISMATCH  the sha256 of a file differs from the manifest
 *     ├── PolicyError      POLICY         the page's content security policy forbids the worker
 *     ├── BackendError     BACKEND        the runtime did not start, or failed
 *     ├── ShapeError       SHAPE          the model does not accept the shape or type of an input
 *     ├── TimeOutError     TIME_OUT       a step took longer than the time limit
 *     ├── DeviceLostError  DEVICE_LOST    the GPU device was lost; the next run starts it again
 *     ├── SelfTestError    SELF_TEST      the results of this device differ from the reference
 *     ├── ImageError       IMAGE          not an image, or damaged, too large or unsupported
 *     ├── QueryError       QUERY          the query has no word, or one that the model does not know
 *     └── UsageError       USAGE          an unknown option, an invalid value, a disposed runner
 */
import type { Code } from "./types.js";

export type { Code };

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
export class PolicyError extends EdgekitError {
  readonly code = "POLICY";
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
  POLICY: PolicyError,
  BACKEND: BackendError,
  SHAPE: ShapeError,
  TIME_OUT: TimeOutError,
  DEVICE_LOST: DeviceLostError,
  SELF_TEST: SelfTestError,
  IMAGE: ImageError,
  QUERY: QueryError,
  USAGE: UsageError,
};

// Minification changes class names, and people read them in consoles and reports.
const NAMES: Record<Code, string> = {
  MANIFEST: "ManifestError",
  ASSET_MISSING: "AssetError",
  HASH_MISMATCH: "HashError",
  POLICY: "PolicyError",
  BACKEND: "BackendError",
  SHAPE: "ShapeError",
  TIME_OUT: "TimeOutError",
  DEVICE_LOST: "DeviceLostError",
  SELF_TEST: "SelfTestError",
  IMAGE: "ImageError",
  QUERY: "QueryError",
  USAGE: "UsageError",
};

/** An error in the form that is sent from the worker to the page. */
export interface SerializedError {
  readonly code: Code;
  readonly message: string;
}

/** Serialize any thrown value; one that is no EdgekitError comes from the runtime. */
export function serializeError(thrown: unknown): SerializedError {
  if (thrown instanceof EdgekitError) return { code: thrown.code, message: thrown.message };
  return { code: "BACKEND", message: `the runtime failed: ${firstLine(thrown)}` };
}

/** The error with its original class. */
export function deserializeError(error: SerializedError): EdgekitError {
  return new CLASSES[error.code](error.message);
}

/** The first line of the message of any thrown value. */
export function firstLine(thrown: unknown): string {
  const text = thrown instanceof Error ? thrown.message : String(thrown);
  return text.split("\n")[0] ?? text;
}
