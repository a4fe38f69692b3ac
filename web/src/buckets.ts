/**
 * The picker of `edgekit export -t onnx-buckets`: which file for an input, and how inputs are padded and answers cut.
 *
 * It runs nothing: give the file that it names to your own runtime. The same in Python and Kotlin (tests/golden/README.md).
 */
import { ManifestError, ShapeError } from "./errors.js";

/** A file, and the size of each axis that it takes. */
export interface Bucket {
  readonly file: string;
  readonly sizes: Readonly<Record<string, number>>;
}

/** A dimension of an output: the product of axes, each divided by a step. */
export interface Part {
  readonly axes: readonly string[];
  readonly steps: readonly number[];
}

/** Values with a shape, row by row. */
export interface Values<T> {
  readonly data: T;
  readonly shape: readonly number[];
}

interface Index {
  readonly rule: string;
  readonly inputs: Readonly<Record<string, readonly (string | null)[]>>;
  readonly outputs: Readonly<Record<string, readonly (Part | null)[]>>;
  readonly buckets: readonly Bucket[];
}

type Sizes = Readonly<Record<string, number>>;
interface Numbers {
  readonly length: number;
  [place: number]: number | bigint;
}

export class Buckets {
  /** "resize": give the picture at a bucket's size. "pad": give it as it is to `padded`, and the answers to `cut`. */
  readonly rule: string;
  readonly buckets: readonly Bucket[];
  readonly #index: Index;

  private constructor(index: Index) {
    this.#index = index;
    this.rule = index.rule;
    this.buckets = index.buckets;
  }

  /** @throws ManifestError if the text is no buckets.json of this version. */
  static parse(text: string): Buckets {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch (error) {
      throw new ManifestError(`buckets.json is no JSON (${String(error)}): export it again`);
    }
    if (!isIndex(value)) throw new ManifestError("buckets.json is damaged, or of another version than 1: export it again");
    return new Buckets(value);
  }

  /** The smallest bucket that holds an input of these sizes; where none does, that which it is scaled down least for. */
  choose(sizes: Sizes): Bucket {
    const scale = (bucket: Bucket): number => Math.max(...Object.entries(bucket.sizes).map(([axis, size]) => (sizes[axis] ?? size) / size));
    const volume = (bucket: Bucket): number => Object.values(bucket.sizes).reduce((product, size) => product * size, 1);
    const holding = this.buckets.filter((bucket) => scale(bucket) <= 1);
    return holding.length > 0 ? least(holding, volume) : least(this.buckets, scale);
  }

  /**
   * An input of a bucket's sizes: the last values along each axis repeated.
   *
   * @throws ShapeError if the input has another number of dimensions, or is larger than the bucket.
   */
  padded<T extends Numbers>(name: string, input: Values<T>, bucket: Bucket): Values<T> {
    const declared = this.#index.inputs[name] ?? input.shape.map(() => null);
    const wanted = input.shape.map((size, d) => bucket.sizes[declared[d] ?? ""] ?? size);
    if (declared.length !== input.shape.length || wanted.some((size, d) => size < (input.shape[d] ?? 0))) {
      throw new ShapeError(`the input "${name}" of the shape [${input.shape.join(", ")}] does not go into the bucket "${bucket.file}"`);
    }
    return clamped(input, wanted);
  }

  /**
   * An output of a bucket, cut to what belongs to an input of these sizes.
   *
   * @throws ShapeError if it is no output of that bucket.
   */
  cut<T extends Numbers>(name: string, output: Values<T>, bucket: Bucket, sizes: Sizes): Values<T> {
    const declared = this.#index.outputs[name] ?? output.shape.map(() => null);
    const factors = (of: Sizes): number[][] => output.shape.map((size, d) => within(declared[d] ?? null, of) ?? [size]);
    const [from, to] = [factors(bucket.sizes), factors({ ...bucket.sizes, ...sizes })];
    if (declared.length !== output.shape.length || from.some((some, d) => product(some) !== output.shape[d])) {
      throw new ShapeError(`the output "${name}" of the shape [${output.shape.join(", ")}] is none of the bucket "${bucket.file}"`);
    }
    return { data: clamped({ data: output.data, shape: from.flat() }, to.flat()).data, shape: to.map(product) };
  }
}

function least(buckets: readonly Bucket[], cost: (bucket: Bucket) => number): Bucket {
  return buckets.reduce((best, bucket) => (cost(bucket) < cost(best) ? bucket : best));
}

function within(part: Part | null, sizes: Sizes): number[] | undefined {
  return part?.axes.map((axis, n) => Math.floor((sizes[axis] ?? 0) / (part.steps[n] ?? 1)));
}

const product = (sizes: readonly number[]): number => sizes.reduce((all, size) => all * size, 1);

/** Values of another shape: cut at the end of each axis, or with its last values repeated. */
function clamped<T extends Numbers>({ data, shape }: Values<T>, wanted: readonly number[]): Values<T> {
  const made = new (data.constructor as new (length: number) => T)(product(wanted));
  const place = wanted.map(() => 0);
  for (let at = 0; at < made.length; at++) {
    let from = 0;
    for (const [d, size] of shape.entries()) from = from * size + Math.min(place[d] ?? 0, size - 1);
    made[at] = data[from] ?? 0;
    for (let d = wanted.length - 1; d >= 0 && ++(place[d] as number) === wanted[d]; d--) place[d] = 0;
  }
  return { data: made, shape: wanted };
}

function isIndex(value: unknown): value is Index {
  const top = value as Partial<Index> & { schema_version?: unknown };
  const sized = (bucket: Partial<Bucket>): boolean =>
    typeof bucket.file === "string" && typeof bucket.sizes === "object" && Object.values(bucket.sizes).every((size) => Number.isInteger(size) && size > 0);
  return (
    typeof value === "object" && value !== null && top.schema_version === 1 && typeof top.rule === "string" &&
    typeof top.inputs === "object" && typeof top.outputs === "object" &&
    Array.isArray(top.buckets) && top.buckets.length > 0 && (top.buckets as Partial<Bucket>[]).every(sized)
  );
}
