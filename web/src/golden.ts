/**
 * Golden vectors: a few images with the outputs of the recorded reference, to test this device with.
 *
 * Those of a model with scores have parts of their own, of any other model they hold inputs and outputs by name.
 * The format is described in web/README.md and shared with the mobile libraries: `golden.json` names the cases and the
 * offsets of their arrays in `golden.bin`.
 */
import type { Bundle } from "./bundle.js";
import { ManifestError } from "./errors.js";
import type { ExpectedOutput, NamedCase, OutputLimits } from "./golden_outputs.js";
import type { Manifest } from "./manifest.js";
import type { Pixels } from "./preprocessing.js";
import type { RawTensor } from "./protocol.js";

export interface Expected {
  readonly relevance: Float32Array;
  readonly budgets: Int32Array;
  readonly indices: Int32Array;
}

export interface GoldenCase {
  readonly name: string;
  readonly words: readonly string[];
  readonly image: Pixels;
  readonly query: Float32Array<ArrayBuffer>;
  readonly expected: Expected;
}

/** The result of one case. */
export interface CaseReport {
  readonly name: string;
  readonly pass: boolean;
  /** Largest absolute error of a score, or of the output that is nearest its limit; infinite where one is NaN. */
  readonly maxAbs: number;
  readonly limit: number;
  /** Largest error of a token budget. */
  readonly budgetOff: number;
  /** Share of the best possible relevance at K that the selected patches lose. */
  readonly lostMass: number;
  readonly ms: number;
  readonly reason: string;
}

export interface SelfTestReport {
  readonly pass: boolean;
  readonly cases: readonly CaseReport[];
  readonly device: string;
  readonly dtype: string;
}

/** Limit of the share of relevance that the selected patches lose: twice the limit of an artifact's verdict. */
export const MAX_LOST_MASS = 0.02;
const [SCORES, OUTPUTS] = [1, 2];
const ARRAYS = { float32: Float32Array, int64: BigInt64Array, int32: Int32Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array } as const;

interface Part {
  readonly offset: number;
  readonly shape: readonly number[];
}

interface NamedPart extends Part {
  readonly dtype: keyof typeof ARRAYS;
  readonly step: number;
}

/** The golden vectors of a bundle: `cases` of a model with scores, `named` ones of any other. */
export interface Golden {
  readonly cases: readonly GoldenCase[];
  readonly named: readonly NamedCase[];
  /** Variant, or "delegated" for other kernels in fp32 -> the limits of each output. */
  readonly limits: Readonly<Record<string, OutputLimits>>;
}

/** Parse golden.json and golden.bin. @throws ManifestError if they do not match. */
export function parseGolden(json: Uint8Array, binary: Uint8Array, url: string): Golden {
  const invalid = (what: string): never => {
    throw new ManifestError(`the golden vectors of ${url} are damaged: ${what}`);
  };
  const top = JSON.parse(new TextDecoder().decode(json)) as { format?: number; cases?: unknown[]; limits?: Golden["limits"] };
  if ((top.format !== SCORES && top.format !== OUTPUTS) || !Array.isArray(top.cases)) {
    invalid(`format ${String(top.format)} is not supported, only ${String(SCORES)} and ${String(OUTPUTS)}`);
  }
  const bytes = (part: Part, size: number): Uint8Array<ArrayBuffer> => {
    const length = size * part.shape.reduce((a, b) => a * b, 1);
    if (part.offset + length > binary.length) invalid("an array extends past the end of golden.bin");
    return binary.slice(part.offset, part.offset + length);
  };
  if (top.format === OUTPUTS) return { cases: [], named: (top.cases ?? []).map((value) => namedCase(value, bytes, invalid)), limits: top.limits ?? {} };
  const cases = (top.cases ?? []).map((value) => {
    const c = value as { name: string; words: string[]; image: Part; query: Part; expected: Record<keyof Expected, Part> };
    const [height = 0, width = 0, channels = 0] = c.image.shape;
    if (channels !== 3) invalid("an image does not have three channels");
    return {
      name: c.name,
      words: c.words,
      image: { data: bytes(c.image, 1), height, width },
      query: new Float32Array(bytes(c.query, 4).buffer),
      expected: {
        relevance: new Float32Array(bytes(c.expected.relevance, 4).buffer),
        budgets: new Int32Array(bytes(c.expected.budgets, 4).buffer),
        indices: new Int32Array(bytes(c.expected.indices, 4).buffer),
      },
    };
  });
  return { cases, named: [], limits: {} };
}

function namedCase(value: unknown, bytes: (part: Part, size: number) => Uint8Array<ArrayBuffer>, invalid: (what: string) => never): NamedCase {
  const c = value as { name: string; image: NamedPart | null; inputs: Record<string, NamedPart>; expected: Record<string, NamedPart> };
  const tensor = (part: NamedPart): ExpectedOutput => {
    const kind = (ARRAYS as Partial<typeof ARRAYS>)[part.dtype] ?? invalid(`an array has the dtype ${part.dtype}`);
    const count = Math.ceil(part.shape.reduce((a, b) => a * b, 1) / part.step);
    const data = new kind(bytes({ offset: part.offset, shape: [count] }, kind.BYTES_PER_ELEMENT).buffer);
    return { dtype: part.dtype, shape: part.shape, data, step: part.step };
  };
  const tensors = (parts: Record<string, NamedPart>): Record<string, ExpectedOutput> =>
    Object.fromEntries(Object.entries(parts).map(([name, part]) => [name, tensor(part)]));
  const [height = 0, width = 0, channels = 0] = c.image?.shape ?? [];
  if (c.image && channels !== 3) invalid("an image does not have three channels");
  const image: Pixels | null = c.image && { data: bytes(c.image, 1), height, width };
  const inputs: Record<string, RawTensor> = tensors(c.inputs);
  return { name: c.name, image, inputs, expected: tensors(c.expected) };
}

/** Compare one output with the reference. `limit` is the largest allowed error of a score. */
export function evaluateCase(c: GoldenCase, output: Expected, limit: number, ms: number): CaseReport {
  const maxAbs = maxAbsDifference(output.relevance, c.expected.relevance);
  const budgetOff = maxAbsDifference(output.budgets, c.expected.budgets);
  const lostMass = lostRelevance(c.expected.relevance, c.expected.indices, output.indices);
  const reason = failureReason(c, output, { maxAbs, limit, budgetOff, lostMass });
  return { name: c.name, pass: reason === "", maxAbs, limit, budgetOff, lostMass, ms, reason };
}

/** Largest absolute difference; infinite where the lengths differ or a value is not finite. */
export function maxAbsDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  if (a.length !== b.length) return Infinity;
  let max = 0;
  for (let i = 0; i < a.length; i++) {
    const error = Math.abs((a[i] ?? NaN) - (b[i] ?? NaN));
    if (!(error <= max)) max = Number.isNaN(error) ? Infinity : error;
  }
  return max;
}

function lostRelevance(scores: Float32Array, best: Int32Array, selected: Int32Array): number {
  const mass = (indices: Int32Array): number => [...new Set(indices)].reduce((sum, i) => sum + (scores[i] ?? 0), 0);
  const possible = mass(best);
  return possible > 0 ? Math.max(0, 1 - mass(selected) / possible) : 0;
}

/** Why a case fails; empty where it passes. */
function failureReason(c: GoldenCase, output: Expected, measured: Pick<CaseReport, "maxAbs" | "limit" | "budgetOff" | "lostMass">): string {
  const { maxAbs, limit, budgetOff, lostMass } = measured;
  const [count, expected] = [output.indices.length, c.expected.indices.length];
  const percent = (share: number): string => (100 * share).toFixed(1);
  // A budget is its score times the range of tokens, rounded: one token more than the error of the score.
  const budgetLimit = 1 + limit * tokensPerScore(c.expected);
  if (!Number.isFinite(maxAbs)) return "a score is not a finite number, or the number of scores is wrong";
  if (maxAbs > limit) return `the largest score error is ${maxAbs.toPrecision(2)} (limit ${limit.toPrecision(2)})`;
  if (count !== expected) return `the number of selected patches is ${String(count)} instead of ${String(expected)}`;
  if (lostMass > MAX_LOST_MASS) return `the selected patches lose ${percent(lostMass)} % of the relevance (limit ${percent(MAX_LOST_MASS)} %)`;
  if (budgetOff > budgetLimit) return `the largest token budget error is ${String(budgetOff)} (limit ${budgetLimit.toFixed(1)})`;
  return "";
}

/** Tokens per unit of score, computed from the expected values. */
function tokensPerScore({ relevance, budgets }: Expected): number {
  let [low, high] = [0, 0];
  relevance.forEach((score, i) => {
    if (score < (relevance[low] ?? 0)) low = i;
    if (score > (relevance[high] ?? 0)) high = i;
  });
  const scores = (relevance[high] ?? 0) - (relevance[low] ?? 0);
  return scores > 1e-3 ? ((budgets[high] ?? 0) - (budgets[low] ?? 0)) / scores : 400;
}

/** golden.json and golden.bin as they are in the bundle. */
export type GoldenFiles = readonly [Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>];

/** Fetch the golden vectors; called early, so that they have arrived when the model is open. */
export function fetchGolden(bundle: Bundle, signal: AbortSignal | undefined): Promise<GoldenFiles> {
  const [list, arrays] = goldenPaths(bundle.manifest);
  return Promise.all([bundle.fetch(list, { signal }), bundle.fetch(arrays, { signal })]);
}

/** The paths of golden.json, which the manifest names, and golden.bin. */
export function goldenPaths({ golden }: Pick<Manifest, "golden">): readonly [string, string] {
  return [golden, golden.replace(/\.json$/, ".bin")];
}
