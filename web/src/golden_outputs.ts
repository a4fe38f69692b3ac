/**
 * Golden vectors of a model without scores: every output by name, format 2 of golden.json (web/README.md).
 *
 * An output passes where it has its shape and all its errors are within its limits: of floats the largest and the root
 * mean square difference, of integers the share of values that differ.
 */
import type { CaseReport } from "./golden.js";
import type { Pixels } from "./preprocessing.js";
import type { RawTensor } from "./protocol.js";

/** An output of the reference: of a large one every `step`-th value. */
export interface ExpectedOutput extends RawTensor {
  readonly step: number;
}

export interface NamedCase {
  readonly name: string;
  /** The picture, before preprocessing; null where no input is one. */
  readonly image: Pixels | null;
  /** The other inputs, as the model takes them. */
  readonly inputs: Readonly<Record<string, RawTensor>>;
  readonly expected: Readonly<Record<string, ExpectedOutput>>;
}

/** Metric -> limit: `max_abs` and `rms` in the output's own units, or `wrong`, a share. */
export type OutputLimits = Readonly<Record<string, Readonly<Record<string, number>>>>;

const WORDS: Readonly<Record<string, string>> = { max_abs: "largest error", rms: "root mean square error", wrong: "share of wrong values" };

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
export function evaluateOutputs(c: NamedCase, outputs: Readonly<Record<string, RawTensor>>, allowed: OutputLimits, ms: number): CaseReport {
  let [maxAbs, limit, reason] = [0, 0, ""];
  let nearest = -1;
  for (const [name, expected] of Object.entries(c.expected)) {
    for (const [metric, error] of Object.entries(errors(expected, outputs[name]))) {
      const most = allowed[name]?.[metric] ?? 0; // without a limit nothing is allowed
      const near = error <= most ? error / (most || 1) : Infinity;
      if (near <= nearest) continue;
      [nearest, maxAbs, limit] = [near, error, most];
      if (near === Infinity) reason = failure(name, metric, error, most);
    }
  }
  return { name: c.name, pass: reason === "", maxAbs, limit, budgetOff: 0, lostMass: 0, ms, reason };
}

function failure(name: string, metric: string, error: number, limit: number): string {
  if (!Number.isFinite(error)) return `the output "${name}" is missing, has another shape or is not finite`;
  return `the ${WORDS[metric] ?? metric} of the output "${name}" is ${error.toPrecision(2)} (limit ${limit.toPrecision(2)})`;
}

/** How far an output is off, by metric; infinite where it is missing, of another shape, or not finite. */
function errors(expected: ExpectedOutput, found: RawTensor | undefined): Readonly<Record<string, number>> {
  const whole = expected.dtype !== "float32";
  const alike = found?.shape.length === expected.shape.length && expected.shape.every((size, axis) => size === found.shape[axis]);
  if (!found || !alike) return whole ? { wrong: Infinity } : { max_abs: Infinity };
  const [a, b] = [numbers(expected), numbers(found)];
  let [largest, squares, wrong] = [0, 0, 0];
  for (let i = 0; i < a.length; i++) {
    const [x, y] = [a[i] ?? NaN, b[i * expected.step] ?? NaN];
    const off = Math.abs(Number(x) - Number(y));
    if (!(off <= largest)) largest = Number.isNaN(off) ? Infinity : off;
    squares += off * off;
    if (x !== y && Number(x) !== Number(y)) wrong += 1;
  }
  const count = Math.max(a.length, 1);
  if (whole) return { wrong: wrong / count };
  return { max_abs: largest, rms: Number.isFinite(largest) ? Math.sqrt(squares / count) : Infinity };
}

function numbers({ data }: RawTensor): ArrayLike<number | bigint> {
  return data as unknown as ArrayLike<number | bigint>;
}
