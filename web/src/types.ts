/**
 * The types that `@edgekit/react-native` has in common with this library (`@edgekit/web/types`). They need no browser, and
 * no code stands behind them.
 */

/** The kind of an error; errors.ts describes each. */
export type Code =
  | "MANIFEST"
  | "ASSET_MISSING"
  | "HASH_MISMATCH"
  | "POLICY"
  | "BACKEND"
  | "SHAPE"
  | "TIME_OUT"
  | "DEVICE_LOST"
  | "SELF_TEST"
  | "IMAGE"
  | "QUERY"
  | "USAGE";

/** Height and width in pixels. */
export interface Size {
  readonly height: number;
  readonly width: number;
}

/** Pixels, row by row: three bytes (RGB) or four (RGBA) each. */
export interface Pixels extends Size {
  readonly data: Uint8Array<ArrayBuffer> | Uint8ClampedArray<ArrayBuffer>;
}

/** Words, or the query's vector. */
export type QueryInput = string | readonly string[] | Float32Array;

/** `relevance`, `budgets` and `indices` are empty, and `rows` and `columns` 0, for a model without scores of patches. */
export interface PatchScores {
  readonly relevance: Float32Array;
  readonly budgets: Int32Array;
  readonly indices: Int32Array;
  readonly rows: number;
  readonly columns: number;
}

export interface QueryAnswer {
  readonly known: readonly string[];
  /** Whether anything in the picture answers the query; null where the model has no threshold for it. */
  readonly present: boolean | null;
}

/** The result of one golden case: the error that is nearest its limit. */
export interface CaseResult {
  readonly name: string;
  readonly pass: boolean;
  readonly output: string;
  /** "max_abs", "rms", "wrong" or "lost_mass". */
  readonly metric: string;
  /** Infinite where the output is missing, has another shape or is not finite. */
  readonly error: number;
  readonly limit: number;
  readonly reason: string;
}

/** What the golden vectors say of a device. */
export interface SelfTestResult {
  readonly pass: boolean;
  readonly cases: readonly CaseResult[];
  readonly device: string;
}

/** The verdict of one place. */
export interface PlaceVerdict {
  readonly place: string;
  /** "verified", "rejected" or "not verified here". */
  readonly status: string;
}
