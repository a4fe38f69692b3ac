/**
 * Manifest: the description that `edgekit export` writes (`class Manifest` in edgekit/artifact/manifest.py).
 *
 * Only the fields that the browser uses are typed here. Every field is validated before use.
 */
import { ManifestError } from "./errors.js";
import type { PlaceVerdict } from "./types.js";

export type Dtype = "fp32" | "fp16" | "q8";
export const DTYPES: readonly Dtype[] = ["fp32", "fp16", "q8"];

/** One file: path relative to the bundle, sizes in bytes (`gzip`, `brotli`: of the precompressed siblings). */
export interface BundleFile {
  readonly path: string;
  readonly size: number;
  readonly sha256: string;
  readonly gzip: number | null;
  readonly brotli: number | null;
}

/** An input or output; a string in `shape` names an axis, or a sum of axes and numbers ("past+tokens"). */
export interface Tensor {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly (number | string)[];
  readonly role: string;
  readonly kind: string;
  readonly low: number;
  readonly high: number;
  /** How a picture gets the model's size: "stretch", "crop" or "letterbox". */
  readonly fit: string;
  /** Names of the classes of logits, probabilities and labels; empty where they have none. */
  readonly classes: readonly string[];
}

export interface Axis {
  readonly default: number;
  readonly minimum: number;
  readonly maximum: number;
  readonly multiple_of: number;
  readonly dynamic: boolean;
}

/** One model of the bundle. */
export interface Variant {
  readonly name: Dtype;
  readonly precision: string;
  readonly path: string;
  readonly target: string;
}

/** The models of the bundle, and the path of their golden vectors; empty where there are none. */
export interface Models {
  readonly variants: readonly Variant[];
  readonly golden: string;
}

export interface Verdict extends PlaceVerdict {
  readonly reason: string;
}

export interface Manifest {
  readonly name: string;
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
  readonly axes: Readonly<Record<string, Axis>>;
  readonly files: readonly BundleFile[];
  readonly bundle: Models;
  readonly verdicts: readonly Verdict[];
  readonly notes: readonly string[];
}

const SCHEMA_VERSION = 2;
/** Between the axes, or sizes, whose sum is a dimension's size. */
export const SUM = "+";

/**
 * Validate a parsed manifest.json.
 *
 * @throws ManifestError naming the URL and the invalid field.
 */
export function parseManifest(value: unknown, url: string): Manifest {
  const read = new Reader(url);
  const top = read.record(value, "manifest");
  if (top.schema_version !== SCHEMA_VERSION) {
    throw new ManifestError(
      `the manifest ${url} has schema version ${JSON.stringify(top.schema_version)}, but this library supports version ${String(SCHEMA_VERSION)}: export the bundle again with the edgekit version of this library`,
    );
  }
  const manifest: Manifest = {
    name: read.name(top.name, "name"),
    inputs: read.list(top.inputs, "inputs", readTensor),
    outputs: read.list(top.outputs, "outputs", readTensor),
    axes: read.table(top.axes, "axes", readAxis),
    files: read.list(top.files, "files", readFile),
    bundle: readModels(read, top.bundle, "bundle"),
    verdicts: read.list(top.verdicts ?? [], "verdicts", readVerdict),
    notes: read.list(top.notes ?? [], "notes", (r, v, at) => r.text(v, at)),
  };
  if (manifest.bundle.variants.length === 0) read.invalid("bundle.variants", "at least one of fp32, fp16, q8");
  for (const variant of manifest.bundle.variants) {
    if (!manifest.files.some((f) => f.path === variant.path)) {
      read.invalid(`variant ${variant.name}`, `the path of a file in the bundle, not ${JSON.stringify(variant.path)}`);
    }
  }
  return manifest;
}

/** The precisions that were verified in a browser. */
export function verifiedDtypes({ bundle, verdicts }: Pick<Manifest, "bundle" | "verdicts">): readonly Dtype[] {
  const verified = (name: Dtype): boolean => verdicts.some((v) => v.place.endsWith(`-${name}`) && v.status === "verified");
  return bundle.variants.map((v) => v.name).filter(verified);
}

/** The precisions that may be chosen unasked: those that were verified; of a bundle in which none was, fp32 alone. */
export function defaultDtypes(manifest: Pick<Manifest, "bundle" | "verdicts">): readonly Dtype[] {
  const verified = verifiedDtypes(manifest);
  return verified.length > 0 ? verified : manifest.bundle.variants.slice(0, 1).map((v) => v.name);
}

/** Whether an axis takes a size. */
export function accepts(axis: Axis, size: number): boolean {
  if (!axis.dynamic) return size === axis.default;
  return Number.isInteger(size) && size >= axis.minimum && size <= axis.maximum && size % axis.multiple_of === 0;
}

/** The size of a dimension; a named axis has its default size. */
export function sizeOf(manifest: Pick<Manifest, "axes">, dimension: number | string | undefined): number | undefined {
  return typeof dimension === "string" ? sum(dimension, (axis) => manifest.axes[axis]?.default) : dimension;
}

/** The sum that a dimension is; undefined where one of its axes has no size. */
export function sum(dimension: string, size: (axis: string) => number | undefined): number | undefined {
  const terms = dimension.split(SUM).map((term) => (/^\d+$/.test(term) ? Number(term) : size(term)));
  return terms.reduce((total, term) => (total === undefined || term === undefined ? undefined : total + term), 0);
}

function readTensor(read: Reader, value: unknown, at: string): Tensor {
  const t = read.record(value, at);
  return {
    name: read.name(t.name, `${at}.name`),
    dtype: read.name(t.dtype, `${at}.dtype`),
    shape: read.list(t.shape ?? [], `${at}.shape`, (r, v, where) => (typeof v === "string" ? r.dimension(v, where) : r.number(v, where))),
    role: read.name(t.role ?? "tensor", `${at}.role`),
    kind: read.name(t.kind ?? "tensor", `${at}.kind`),
    low: read.number(t.low ?? 0, `${at}.low`),
    high: read.number(t.high ?? 1, `${at}.high`),
    fit: read.text(t.fit ?? "stretch", `${at}.fit`),
    classes: read.list(t.classes ?? [], `${at}.classes`, (r, v, where) => r.text(v, where)),
  };
}

function readAxis(read: Reader, value: unknown, at: string): Axis {
  const axis = read.record(value, at);
  return {
    default: read.number(axis.default, `${at}.default`),
    minimum: read.number(axis.minimum, `${at}.minimum`),
    maximum: read.number(axis.maximum, `${at}.maximum`),
    multiple_of: read.number(axis.multiple_of, `${at}.multiple_of`),
    dynamic: axis.dynamic === true,
  };
}

function readFile(read: Reader, value: unknown, at: string): BundleFile {
  const file = read.record(value, at);
  const path = read.text(file.path, `${at}.path`);
  // Only what a URL keeps as it is: a space in front of "//host" and "%2e%2e/" both lead out of the bundle's folder.
  if (!/^[\w.@+-]+(\/[\w.@+-]+)*$/.test(path) || path.split("/").some((part) => part === "." || part === "..")) {
    read.invalid(`${at}.path`, `a relative path inside the bundle, not ${JSON.stringify(path)}`);
  }
  const sha256 = read.text(file.sha256, `${at}.sha256`);
  if (!/^[0-9a-f]{64}$/.test(sha256)) read.invalid(`${at}.sha256`, "64 hexadecimal digits");
  const size = read.bytes(file.size, `${at}.size`);
  return { path, size, sha256, gzip: read.optional(file.gzip, at), brotli: read.optional(file.brotli, at) };
}

function readModels(read: Reader, value: unknown, at: string): Models {
  const models = read.record(value, at);
  return {
    variants: read.list(models.variants, `${at}.variants`, readVariant).filter((v) => DTYPES.includes(v.name)),
    golden: read.text(models.golden ?? "", `${at}.golden`),
  };
}

function readVariant(read: Reader, value: unknown, at: string): Variant {
  const variant = read.record(value, at);
  return {
    name: read.name(variant.name, `${at}.name`) as Dtype,
    precision: read.name(variant.precision, `${at}.precision`),
    path: read.text(variant.path, `${at}.path`),
    target: read.name(variant.target, `${at}.target`),
  };
}

function readVerdict(read: Reader, value: unknown, at: string): Verdict {
  const verdict = read.record(value, at);
  return {
    place: read.name(verdict.place, `${at}.place`),
    status: read.text(verdict.status, `${at}.status`),
    reason: read.text(verdict.reason ?? "", `${at}.reason`),
  };
}

type Row = Record<string, unknown>;

/** Reads fields and reports which one is invalid. */
class Reader {
  constructor(private readonly url: string) {}

  invalid(field: string, expected: string): never {
    const shown = field.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "?"); // a field's name is the manifest's too
    throw new ManifestError(`the manifest ${this.url} is invalid: ${shown} must be ${expected}`);
  }

  record(value: unknown, at: string): Row {
    if (typeof value !== "object" || value === null || Array.isArray(value)) this.invalid(at, "an object");
    return value as Row;
  }

  text(value: unknown, at: string): string {
    return typeof value === "string" ? value : this.invalid(at, "a string");
  }

  /** A word that may stand in code and markup. */
  name(value: unknown, at: string): string {
    const word = this.text(value, at);
    return /^[A-Za-z0-9_][A-Za-z0-9_.-]*$/.test(word) ? word : this.invalid(at, "a name of letters, digits, dots, dashes and underscores");
  }

  /** An axis, or a sum of axes and sizes. */
  dimension(value: string, at: string): string {
    for (const term of value.split(SUM)) this.name(term, at);
    return value;
  }

  number(value: unknown, at: string): number {
    return typeof value === "number" && Number.isFinite(value) ? value : this.invalid(at, "a number");
  }

  bytes(value: unknown, at: string): number {
    return Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : this.invalid(at, "a size in bytes");
  }

  optional(value: unknown, at: string): number | null {
    return value === null || value === undefined ? null : this.bytes(value, at);
  }

  list<T>(value: unknown, at: string, each: (read: Reader, value: unknown, at: string) => T): T[] {
    if (!Array.isArray(value)) this.invalid(at, "a list");
    return value.map((item: unknown, i) => each(this, item, `${at}[${String(i)}]`));
  }

  /** A record whose keys are names. */
  table<T>(value: unknown, at: string, each: (read: Reader, value: unknown, at: string) => T): Record<string, T> {
    return Object.fromEntries(
      Object.entries(this.record(value, at)).map(([key, item]) => [this.name(key, `${at}.${key}`), each(this, item, `${at}.${key}`)]),
    );
  }
}
