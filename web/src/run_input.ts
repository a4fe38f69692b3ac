/** RunInput: what `run` takes, as the backend gets it, and which of a list may be one batch. */
import { environment } from "./environment.js";
import { ShapeError, UsageError } from "./errors.js";
import { type Size, checkedSize, fittingSize } from "./input_size.js";
import { type Axis, type Manifest, type Variant, SUM, accepts, sizeOf, sum } from "./manifest.js";
import { fetchPicture, isAddress } from "./picture_address.js";
import { type ImageSource, type TransferableImage, isPixels, isTensor, decode, toTransferable } from "./preprocessing.js";
import type { RawTensor } from "./tensor.js";
import type { QueryInput } from "./types.js";
import type { EncodedQuery, QueryEncoder } from "./query_encoder.js";

export interface RunInput {
  /** A picture, or its address. */
  readonly image: ImageSource | string | URL;
  readonly query?: QueryInput;
  /** Size of the model's input; default: of those that the model takes, the one whose shape is nearest to the picture's. */
  readonly size?: Size;
}

/** One input as the backend gets it. */
export interface Prepared {
  readonly image: TransferableImage;
  readonly vector: Float32Array<ArrayBuffer> | null;
  readonly known: readonly string[];
  readonly height: number;
  readonly width: number;
}

/**
 * Check an input, encode its query, and make its picture one that can be sent to a worker.
 *
 * @throws ImageError, QueryError, ShapeError, UsageError, and AssetError for a picture that cannot be fetched.
 */
export async function prepare(
  input: RunInput,
  manifest: Manifest,
  encoder: QueryEncoder | undefined,
  signal: AbortSignal | undefined,
): Promise<Prepared> {
  if (typeof (input as unknown) !== "object" || (input as unknown) === null) {
    throw new UsageError("run() needs an object: { image, query }");
  }
  const { vector, known } = await encodeQuery(input.query, manifest, encoder);
  const source = isAddress(input.image) ? await fetchPicture(input.image, signal) : input.image;
  const native = isTensor(source) || (!environment().draws && isPixels(source));
  const image = await toTransferable(source);
  if (native || input.size) return { image, vector, known, ...checkedSize(manifest, native ? source : input.size) };
  const drawn = image instanceof Blob ? await decode(image, 4096) : image;
  return { image: drawn, vector, known, ...fittingSize(manifest, drawn) };
}

async function encodeQuery(
  query: RunInput["query"],
  manifest: Manifest,
  encoder: QueryEncoder | undefined,
): Promise<Pick<EncodedQuery, "known"> & { vector: EncodedQuery["vector"] | null }> {
  if (query === undefined) return { vector: null, known: [] };
  if (!(query instanceof Float32Array)) {
    const words = typeof query === "string" || (Array.isArray(query) && query.every((word) => typeof word === "string"));
    if (!words) throw new UsageError(`the query must be a string, a list of strings or a Float32Array, not ${JSON.stringify(query)}`);
    if (!encoder) throw new UsageError("this bundle has no vocabulary: pass the query as a Float32Array");
    return encoder.encode(query);
  }
  const expected = sizeOf(manifest, manifest.inputs.find((i) => i.kind === "query")?.shape[1]);
  if (query.length !== expected) {
    throw new ShapeError(`the query has ${String(query.length)} values, but the model expects ${String(expected)}`);
  }
  return { vector: new Float32Array(query), known: [] };
}

const ARRAYS: Readonly<Record<string, readonly string[]>> = {
  float32: ["Float32Array"], float64: ["Float64Array"], float16: ["Float16Array", "Uint16Array"], int64: ["BigInt64Array"], uint64: ["BigUint64Array"],
  int32: ["Int32Array"], uint32: ["Uint32Array"], int16: ["Int16Array"], uint16: ["Uint16Array"], int8: ["Int8Array"], uint8: ["Uint8Array"], bool: ["Uint8Array"],
};

/**
 * See that raw tensors are those that the model takes.
 *
 * @throws ShapeError naming the input, what it is and what is taken.
 */
export function checkTensors(inputs: Readonly<Record<string, RawTensor>>, { inputs: declared, axes }: Pick<Manifest, "inputs" | "axes">): void {
  const names = declared.map((input) => input.name);
  if (typeof (inputs as unknown) !== "object" || (inputs as unknown) === null) throw new ShapeError(`feed() needs an object of tensors: ${names.join(", ")}`);
  const unknown = Object.keys(inputs).find((name) => !names.includes(name));
  if (unknown !== undefined) throw new ShapeError(`the model has no input "${unknown}": its inputs are ${names.join(", ")}`);
  const found: Record<string, number> = {};
  for (const { name, dtype, shape } of declared) {
    const given = inputs[name] as Partial<RawTensor> | undefined;
    const taken = `{ dtype: "${dtype}", shape: [${shape.join(", ")}], data: ${(ARRAYS[dtype] ?? ["a typed array"])[0] ?? ""} }`;
    if (!given) throw new ShapeError(`the model input "${name}" is missing: pass ${taken}`);
    const sizes: readonly number[] | undefined = Array.isArray(given.shape) ? given.shape : undefined;
    if (given.dtype !== dtype || !sizes) throw new ShapeError(`the input "${name}" must be ${taken}`);
    const fits = shape.length === sizes.length && shape.every((size, at) => takes(typeof size === "string" ? axes[size] : size, sizes[at] ?? 0));
    if (!fits) throw new ShapeError(`the input "${name}" has the shape [${sizes.join(", ")}], but the model accepts ${shape.map((size) => described(size, axes)).join(" x ")}`);
    for (const [at, dimension] of shape.entries()) if (typeof dimension === "string") found[dimension] ??= sizes[at] ?? 0;
    const count = sizes.reduce((product, size) => product * size, 1);
    const array = given.data as { readonly length?: number; readonly constructor: { readonly name: string } } | undefined;
    const typed = array !== undefined && (ARRAYS[dtype] ?? [array.constructor.name]).includes(array.constructor.name);
    if (!typed || array.length !== count) throw new ShapeError(`the data of the input "${name}" must be ${String(count)} values in a ${(ARRAYS[dtype] ?? [dtype]).join(" or ")}`);
  }
  for (const [dimension, size] of Object.entries(found)) {
    const wanted = dimension.includes(SUM) ? sum(dimension, (axis) => found[axis]) : size;
    if (wanted !== undefined && wanted !== size) throw new ShapeError(`a size of the inputs is ${String(size)}, but the model takes ${dimension} there, which is ${String(wanted)}`);
  }
}

/** A symbol that is no axis takes any size. */
function takes(declared: Axis | number | undefined, size: number): boolean {
  if (declared === undefined) return Number.isInteger(size) && size > 0;
  return typeof declared === "number" ? size === declared : accepts(declared, size);
}

function described(size: number | string, axes: Manifest["axes"]): string {
  const axis = typeof size === "string" ? axes[size] : undefined;
  if (!axis) return String(size);
  return axis.dynamic ? `${String(axis.minimum)} to ${String(axis.maximum)} in steps of ${String(axis.multiple_of)}` : String(axis.default);
}

/** Whether two may be in one batch. */
export function alike(a: Prepared, b: Prepared): boolean {
  return a.height === b.height && a.width === b.width && a.vector?.length === b.vector?.length;
}

/** The target whose models take the ranges of their INT8 from a whole batch: an answer would depend on its neighbours. */
const DYNAMIC_INT8 = "onnx-int8-dynamic";

/** The largest batch whose answers are those of single runs; 1 where an input or output does not grow with the batch. */
export function largestBatch({ inputs, outputs, axes }: Pick<Manifest, "inputs" | "outputs" | "axes">, variant: Variant | undefined): number {
  const first = inputs[0]?.shape[0];
  const axis = typeof first === "string" ? axes[first] : undefined;
  const grows = [...inputs, ...outputs].every(({ shape }) => shape[0] === first && shape.filter((d) => d === first).length === 1);
  if (!axis?.dynamic || axis.minimum > 1 || !grows || variant?.target === DYNAMIC_INT8) return 1;
  return axis.maximum;
}
