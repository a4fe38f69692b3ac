/** TensorText: tensors as nested lists of JSON, to be read and changed. */
import { ShapeError } from "../src/errors";
import type { RawTensor } from "../src/index";
import { numbers } from "./tensor_words";

const DIGITS = 7; // significant: all that float32 has
const ARRAYS = {
  float32: Float32Array, float64: Float64Array, int32: Int32Array, uint32: Uint32Array, int16: Int16Array,
  uint16: Uint16Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array, int64: BigInt64Array, uint64: BigUint64Array,
} as const;

type Nested = number | readonly Nested[];

/** Whether tensors of a type can be written as text; those of float16 come as bits. */
export function isWritable(dtype: string): boolean {
  return dtype in ARRAYS;
}

/** A tensor as nested lists, one line a row. @param most - Values that are written; a mark stands for the others. */
export function tensorText({ dtype, shape, data }: RawTensor, most = Infinity): string {
  const values = numbers(data);
  const shown = (value: number): string => {
    if (dtype === "bool") return String(value !== 0);
    return Number.isFinite(value) ? String(Number(value.toPrecision(dtype.includes("int") ? 17 : DIGITS))) : `"${String(value)}"`;
  };
  if (values.length > most) return `${values.slice(0, most).map(shown).join(", ")}, … ${String(values.length - most)} more`;
  const nested = (axis: number, from: number): string => {
    const size = shape[axis];
    if (size === undefined) return shown(values[from] ?? 0);
    const step = shape.slice(axis + 1).reduce((a, b) => a * b, 1);
    const parts = Array.from({ length: size }, (_, i) => nested(axis + 1, from + i * step));
    return `[${parts.join(axis === shape.length - 1 ? ", " : ",\n")}]`;
  };
  return nested(0, 0);
}

/** A tensor from nested lists, or from the object {"shape": [1, 3], "data": [1, 2, 3]}. @throws ShapeError saying what is wrong. */
export function parseTensorText(text: string, name: string, dtype: string): RawTensor {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    throw new ShapeError(`the values of "${name}" are no JSON: write numbers in lists, for example [[1, 2], [3, 4]]`);
  }
  const given = typeof parsed === "object" && parsed !== null && "data" in parsed ? (parsed as { data: unknown; shape?: number[] }) : { data: parsed };
  const { shape, values } = flat(given.data, name);
  return castTensor({ dtype: "float64", shape: given.shape ?? shape, data: Float64Array.from(values) }, name, dtype);
}

/** A tensor in another type of numbers; whole numbers stay whole. @throws ShapeError where the values do not go into it. */
export function castTensor(tensor: RawTensor, name: string, dtype: string): RawTensor {
  if (tensor.dtype === dtype) return tensor;
  const array = (ARRAYS as Partial<Record<string, (typeof ARRAYS)[keyof typeof ARRAYS]>>)[dtype];
  if (!array || tensor.dtype === "float16") throw new ShapeError(`the input "${name}" is of ${dtype}, and the values are of ${tensor.dtype}: save them with x.astype("${dtype}")`);
  const values = numbers(tensor.data);
  const whole = dtype.includes("int") || dtype === "bool";
  const odd = whole ? values.find((value) => !Number.isInteger(value)) : undefined;
  if (odd !== undefined) throw new ShapeError(`the input "${name}" takes whole numbers (${dtype}), not ${String(odd)}`);
  const data = array === BigInt64Array || array === BigUint64Array ? array.from(values.map(BigInt)) : (array as Float32ArrayConstructor).from(values);
  return { dtype, shape: tensor.shape, data };
}

function flat(nested: unknown, name: string): { shape: number[]; values: number[] } {
  if (typeof nested === "number") return { shape: [], values: [nested] };
  if (typeof nested === "boolean") return { shape: [], values: [Number(nested)] };
  if (nested === "NaN" || nested === "Infinity" || nested === "-Infinity") return { shape: [], values: [Number(nested)] };
  if (!Array.isArray(nested)) throw new ShapeError(`the values of "${name}" must be numbers in lists, not ${JSON.stringify(nested).slice(0, 40)}`);
  const parts = (nested as Nested[]).map((part) => flat(part, name));
  const [first] = parts;
  if (parts.some(({ shape }) => shape.join() !== first?.shape.join())) throw new ShapeError(`the lists of "${name}" have different lengths: each row of a tensor is as long as the others`);
  return { shape: [parts.length, ...(first?.shape ?? [])], values: parts.flatMap(({ values }) => values) };
}
