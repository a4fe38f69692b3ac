/** Npy: a tensor from a file that numpy.save wrote (NEP 1). */
import { ShapeError } from "../src/errors";
import type { RawTensor } from "../src/index";

const MAGIC = "\x93NUMPY";
const TYPES = {
  f8: ["float64", Float64Array], f4: ["float32", Float32Array], f2: ["float16", Uint16Array],
  i8: ["int64", BigInt64Array], i4: ["int32", Int32Array], i2: ["int16", Int16Array], i1: ["int8", Int8Array],
  u8: ["uint64", BigUint64Array], u4: ["uint32", Uint32Array], u2: ["uint16", Uint16Array], u1: ["uint8", Uint8Array],
  b1: ["bool", Uint8Array],
} as const;

/** @throws ShapeError saying why, and how to save it instead. */
export function parseNpy(bytes: Uint8Array<ArrayBuffer>, name: string): RawTensor {
  const text = (from: number, to: number): string => String.fromCharCode(...bytes.subarray(from, to));
  if (text(0, 6) !== MAGIC) throw new ShapeError(`${name} is no .npy file: save one tensor with numpy.save`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [start, length] = bytes[6] === 1 ? [10, view.getUint16(8, true)] : [12, view.getUint32(8, true)];
  const header = text(start, Math.min(start + length, bytes.length));
  const descr = /'descr': '([<>|=])(\w+)'/.exec(header);
  const order = /'fortran_order': (\w+)/.exec(header)?.[1];
  const shape = /'shape': \(([\d, ]*)\)/.exec(header)?.[1]?.split(",").map((part) => part.trim()).filter(Boolean).map(Number);
  const known = (TYPES as Partial<Record<string, (typeof TYPES)[keyof typeof TYPES]>>)[descr?.[2] ?? ""];
  if (!shape || !known || descr?.[1] === ">") throw new ShapeError(`${name} holds no tensor of numbers in little endian: save it with numpy.save("x.npy", x.astype("<f4"))`);
  if (order !== "False") throw new ShapeError(`${name} has its axes in Fortran's order: save numpy.ascontiguousarray(x)`);
  const [dtype, array] = known;
  const count = shape.reduce((a, b) => a * b, 1);
  const data = bytes.slice(start + length, start + length + count * array.BYTES_PER_ELEMENT);
  if (data.length !== count * array.BYTES_PER_ELEMENT) throw new ShapeError(`${name} is cut off: ${shape.join(" x ")} values of ${dtype} need ${String(count * array.BYTES_PER_ELEMENT)} bytes, and it has ${String(data.length)}`);
  return { dtype, shape, data: new array(data.buffer) };
}
