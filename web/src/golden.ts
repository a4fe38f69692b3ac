/**
 * Golden vectors: a few rows with the outputs of the recorded reference by name, to test this device with.
 *
 * The format is described in web/README.md and shared with the mobile libraries: `golden.json` names the cases and the
 * offsets of their arrays in `golden.bin`. An output passes where it has its shape and each of its errors is within its
 * limit.
 */
import type { Bundle } from "./bundle.js";
import { ManifestError } from "./errors.js";
import type { Manifest } from "./manifest.js";
import type { Pixels } from "./preprocessing.js";
import type { RawTensor } from "./tensor.js";
import type { CaseResult, SelfTestResult } from "./types.js";

/** An output of the reference: of a large one every `step`-th value, and of a ranking the scores that it is `of`. */
export interface ExpectedOutput extends RawTensor {
  readonly step: number;
  readonly of?: string;
}

export interface GoldenCase {
  readonly name: string;
  /** The picture, before preprocessing; null where no input is one. */
  readonly image: Pixels | null;
  /** The other inputs, as the model takes them. */
  readonly inputs: Readonly<Record<string, RawTensor>>;
  readonly expected: Readonly<Record<string, ExpectedOutput>>;
}

/** Output -> metric -> limit: `max_abs` and `rms` in the output's own units, `wrong` and `lost_mass` shares. */
export type OutputLimits = Readonly<Record<string, Readonly<Record<string, number>>>>;

/** The golden vectors of a bundle. */
export interface Golden {
  readonly cases: readonly GoldenCase[];
  /** Variant, or "delegated" for other kernels in fp32 -> the limits of each output. */
  readonly limits: Readonly<Record<string, OutputLimits>>;
}

export interface CaseReport extends CaseResult {
  readonly ms: number;
}

export interface SelfTestReport extends SelfTestResult {
  readonly cases: readonly CaseReport[];
  readonly dtype: string;
}

const FORMAT = 3;
const ARRAYS = { float32: Float32Array, int64: BigInt64Array, int32: Int32Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array } as const;
const WORDS: Readonly<Record<string, string>> = {
  max_abs: "largest error",
  rms: "root mean square error",
  wrong: "share of wrong values",
  lost_mass: "lost share of the scores",
};

interface Part {
  readonly offset: number;
  readonly shape: readonly number[];
  readonly dtype: keyof typeof ARRAYS;
  readonly step: number;
  readonly of?: string;
}

interface Row {
  readonly name: string;
  readonly image: Part | null;
  readonly inputs: Record<string, Part>;
  readonly expected: Record<string, Part>;
}

/** Parse golden.json and golden.bin. @throws ManifestError if they do not match. */
export function parseGolden(json: Uint8Array, binary: Uint8Array, url: string): Golden {
  const invalid = (what: string): never => {
    throw new ManifestError(`the golden vectors of ${url} are damaged: ${what}`);
  };
  const bytes = (offset: number, length: number): Uint8Array<ArrayBuffer> => {
    if (offset + length > binary.length) invalid("an array extends past the end of golden.bin");
    return binary.slice(offset, offset + length);
  };
  const tensor = (part: Part): ExpectedOutput => {
    const kind = (ARRAYS as Partial<typeof ARRAYS>)[part.dtype] ?? invalid(`an array has the dtype ${part.dtype}`);
    const count = Math.ceil(size(part.shape) / part.step);
    const data = new kind(bytes(part.offset, count * kind.BYTES_PER_ELEMENT).buffer);
    return { dtype: part.dtype, shape: part.shape, data, step: part.step, ...(part.of && { of: part.of }) };
  };
  const tensors = (parts: Record<string, Part>): Record<string, ExpectedOutput> =>
    Object.fromEntries(Object.entries(parts).map(([name, part]) => [name, tensor(part)]));
  const top = JSON.parse(new TextDecoder().decode(json)) as { format?: number; cases?: Row[]; limits?: Golden["limits"] };
  if (top.format !== FORMAT || !Array.isArray(top.cases)) invalid(`format ${String(top.format)} is not supported, only ${String(FORMAT)}`);
  const cases = (top.cases ?? []).map((row) => {
    const [height = 0, width = 0, channels = 0] = row.image?.shape ?? [];
    if (row.image && channels !== 3) invalid("an image does not have three channels");
    const image: Pixels | null = row.image && { data: bytes(row.image.offset, size(row.image.shape)), height, width };
    return { name: row.name, image, inputs: tensors(row.inputs), expected: tensors(row.expected) };
  });
  return { cases, limits: top.limits ?? {} };
}

/** What several tables of limits allow together: of each limit the largest. */
export function widest(tables: readonly OutputLimits[]): OutputLimits {
  const joined: Record<string, Record<string, number>> = {};
  for (const [name, limits] of tables.flatMap((table) => Object.entries(table))) {
    const own = (joined[name] ??= {});
    for (const [metric, limit] of Object.entries(limits)) own[metric] = Math.max(own[metric] ?? 0, limit);
  }
  return joined;
}

/** Compare a model's outputs with those of the reference; the report has the error that is nearest its limit. */
export function evaluateCase(c: GoldenCase, outputs: Readonly<Record<string, RawTensor>>, limits: OutputLimits, ms: number): CaseReport {
  let report: CaseReport = { name: c.name, pass: true, output: "", metric: "", error: 0, limit: 0, ms, reason: "" };
  let nearest = -1;
  for (const [output, expected] of Object.entries(c.expected)) {
    const own = limits[output] ?? { max_abs: 0 }; // without a limit nothing is allowed
    for (const [metric, limit] of Object.entries(own)) {
      const error = difference(metric, c, expected, outputs[output]);
      const near = error <= limit ? error / (limit || 1) : Infinity;
      if (near <= nearest) continue;
      nearest = near;
      const pass = near < Infinity;
      report = { name: c.name, pass, output, metric, error, limit, ms, reason: pass ? "" : failure(output, metric, error, limit) };
    }
  }
  return report;
}

function failure(output: string, metric: string, error: number, limit: number): string {
  if (!Number.isFinite(error)) return `the output "${output}" is missing, has another shape or is not finite`;
  return `the ${WORDS[metric] ?? metric} of the output "${output}" is ${error.toPrecision(2)} (limit ${limit.toPrecision(2)})`;
}

/** How far an output is off; infinite where it is missing, of another shape, or not finite. */
function difference(metric: string, c: GoldenCase, expected: ExpectedOutput, found: RawTensor | undefined): number {
  const alike = found?.shape.length === expected.shape.length && expected.shape.every((length, axis) => length === found.shape[axis]);
  if (!found || !alike) return Infinity;
  const [a, b] = [numbers(expected), numbers(found)];
  if (metric === "lost_mass") return lostMass(c.expected[expected.of ?? ""], a, b);
  let [largest, squares, wrong] = [0, 0, 0];
  for (let i = 0; i < a.length; i++) {
    const [x, y] = [a[i] ?? NaN, b[i * expected.step] ?? NaN];
    const off = Math.abs(Number(x) - Number(y));
    if (!(off <= largest)) largest = Number.isNaN(off) ? Infinity : off;
    squares += off * off;
    if (x !== y && Number(x) !== Number(y)) wrong += 1;
  }
  const count = Math.max(a.length, 1);
  if (metric === "wrong") return wrong / count;
  return metric === "rms" && Number.isFinite(largest) ? Math.sqrt(squares / count) : largest;
}

/** Share of the best possible sum of scores that the chosen places lack; each place counts once. */
function lostMass(scores: ExpectedOutput | undefined, best: ArrayLike<number | bigint>, chosen: ArrayLike<number | bigint>): number {
  if (!scores) return Infinity;
  const values = numbers(scores);
  const mass = (places: ArrayLike<number | bigint>): number =>
    [...new Set(Array.from(places, Number))].reduce((sum, place) => sum + Number(values[place] ?? 0), 0);
  const possible = mass(best);
  return possible > 0 ? Math.max(0, 1 - mass(chosen) / possible) : 0;
}

function numbers({ data }: RawTensor): ArrayLike<number | bigint> {
  return data as unknown as ArrayLike<number | bigint>;
}

function size(shape: readonly number[]): number {
  return shape.reduce((a, b) => a * b, 1);
}

/** golden.json and golden.bin as they are in the bundle. */
export type GoldenFiles = readonly [Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>];

/** Fetch the golden vectors; called early, so that they have arrived when the model is open. */
export function fetchGolden(bundle: Bundle, signal: AbortSignal | undefined): Promise<GoldenFiles> {
  const [list, arrays] = goldenPaths(bundle.manifest);
  return Promise.all([bundle.fetch(list, { signal }), bundle.fetch(arrays, { signal })]);
}

/** The paths of golden.json, which the manifest names, and golden.bin. */
export function goldenPaths({ bundle: { golden } }: Pick<Manifest, "bundle">): readonly [string, string] {
  return [golden, golden.replace(/\.json$/, ".bin")];
}
