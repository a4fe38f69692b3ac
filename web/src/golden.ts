/**
 * Golden vectors: a few pictures with the answers that the reference gave, to check this very device with.
 *
 * The format is described in web/README.md and shared with the mobile libraries: `golden.json` names the cases and where
 * their parts lie in `golden.bin`.
 */
import { ManifestError } from "./errors";
import type { Manifest } from "./manifest";
import type { Pixels } from "./picture";

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

/** How one case came out. */
export interface CaseReport {
  readonly name: string;
  readonly pass: boolean;
  /** Largest absolute difference of a score; infinite where one is not a number. */
  readonly maxAbs: number;
  readonly limit: number;
  /** Largest difference of a budget, in tokens. */
  readonly budgetOff: number;
  /** Share of the best possible relevance at K that the chosen patches miss. */
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

/** Largest share of relevance mass that the chosen patches may miss: twice what an artifact's verdict allows. */
export const LOST_MASS = 0.02;
const FORMAT = 1;

interface Part {
  readonly offset: number;
  readonly shape: readonly number[];
}

/** Read golden.json and golden.bin. @throws ManifestError if they do not fit each other. */
export function parseGolden(json: Uint8Array, binary: Uint8Array, url: string): GoldenCase[] {
  const wrong = (what: string): never => {
    throw new ManifestError(`the golden vectors of ${url} are damaged: ${what}`);
  };
  const top = JSON.parse(new TextDecoder().decode(json)) as { format?: number; cases?: unknown[] };
  if (top.format !== FORMAT || !Array.isArray(top.cases)) wrong(`format ${String(top.format)} is not ${String(FORMAT)}`);
  const bytes = (part: Part, size: number): Uint8Array<ArrayBuffer> => {
    const length = size * part.shape.reduce((a, b) => a * b, 1);
    if (part.offset + length > binary.length) wrong("a part lies behind the end of the file");
    return binary.slice(part.offset, part.offset + length);
  };
  return (top.cases ?? []).map((value) => {
    const c = value as { name: string; words: string[]; image: Part; query: Part; expected: Record<keyof Expected, Part> };
    const [height = 0, width = 0, channels = 0] = c.image.shape;
    if (channels !== 3) wrong("an image has not three channels");
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
}

/** Judge one answer. `limit` is the largest allowed difference of a score. */
export function judge(c: GoldenCase, answer: Expected, limit: number, ms: number): CaseReport {
  const maxAbs = largest(answer.relevance, c.expected.relevance);
  const budgetOff = largest(answer.budgets, c.expected.budgets);
  const lostMass = lost(c.expected.relevance, c.expected.indices, answer.indices);
  const reason = why(c, answer, { maxAbs, limit, budgetOff, lostMass });
  return { name: c.name, pass: reason === "", maxAbs, limit, budgetOff, lostMass, ms, reason };
}

/** Largest absolute difference; infinite where the lengths differ or a value is not finite. */
export function largest(a: ArrayLike<number>, b: ArrayLike<number>): number {
  if (a.length !== b.length) return Infinity;
  let most = 0;
  for (let i = 0; i < a.length; i++) {
    const off = Math.abs((a[i] ?? NaN) - (b[i] ?? NaN));
    if (!(off <= most)) most = Number.isNaN(off) ? Infinity : off;
  }
  return most;
}

function lost(scores: Float32Array, best: Int32Array, chosen: Int32Array): number {
  const mass = (indices: Int32Array): number => [...new Set(indices)].reduce((sum, i) => sum + (scores[i] ?? 0), 0);
  const possible = mass(best);
  return possible > 0 ? Math.max(0, 1 - mass(chosen) / possible) : 0;
}

function why(c: GoldenCase, answer: Expected, seen: { maxAbs: number; limit: number; budgetOff: number; lostMass: number }): string {
  const { maxAbs, limit, budgetOff, lostMass } = seen;
  if (!Number.isFinite(maxAbs)) return "a score is not a number, or there are more or fewer of them";
  if (maxAbs > limit) return `a score is off by ${maxAbs.toPrecision(2)}, and ${limit.toPrecision(2)} is allowed`;
  if (answer.indices.length !== c.expected.indices.length) return "another number of patches was chosen";
  if (lostMass > LOST_MASS) return `the chosen patches miss ${(100 * lostMass).toFixed(1)} % of the relevance`;
  // A budget follows from its score over a range of (high - low) tokens, and rounds once more.
  const range = spread(c.expected);
  if (budgetOff > 1 + limit * range) return `a budget is off by ${String(budgetOff)} tokens`;
  return "";
}

/** Tokens per unit of score, from the expected values themselves. */
function spread({ relevance, budgets }: Expected): number {
  let [low, high] = [0, 0];
  relevance.forEach((score, i) => {
    if (score < (relevance[low] ?? 0)) low = i;
    if (score > (relevance[high] ?? 0)) high = i;
  });
  const scores = (relevance[high] ?? 0) - (relevance[low] ?? 0);
  return scores > 1e-3 ? ((budgets[high] ?? 0) - (budgets[low] ?? 0)) / scores : 400;
}

/** The two files of golden vectors in a bundle: their list, which the manifest names, and their arrays beside it. */
export function goldenPaths({ golden }: Pick<Manifest, "golden">): readonly [string, string] {
  return [golden, golden.replace(/\.json$/, ".bin")];
}
