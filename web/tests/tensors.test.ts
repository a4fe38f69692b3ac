import { describe, expect, it } from "vitest";
import { parseNpy } from "../page/npy";
import { castTensor, parseTensorText, tensorText } from "../page/tensor_text";

function npy(descr: string, shape: string, data: Uint8Array, order = "False"): Uint8Array<ArrayBuffer> {
  const header = `{'descr': '${descr}', 'fortran_order': ${order}, 'shape': (${shape}), }`.padEnd(117) + "\n";
  return Uint8Array.from([0x93, ...new TextEncoder().encode("NUMPY"), 1, 0, header.length, 0, ...new TextEncoder().encode(header), ...data]);
}

describe("parseNpy", () => {
  it("reads what numpy.save wrote", () => {
    const bytes = new Uint8Array(Float64Array.of(0.5, -2).buffer);
    expect(parseNpy(npy("<f8", "1, 2", bytes), "x.npy")).toEqual({ dtype: "float64", shape: [1, 2], data: Float64Array.of(0.5, -2) });
    expect(parseNpy(npy("|u1", "2,", Uint8Array.of(3, 4)), "x.npy")).toEqual({ dtype: "uint8", shape: [2], data: Uint8Array.of(3, 4) });
    expect(parseNpy(npy("<i8", "", new Uint8Array(BigInt64Array.of(7n).buffer)), "x.npy")).toEqual({ dtype: "int64", shape: [], data: BigInt64Array.of(7n) });
  });
  it.each([
    [Uint8Array.of(1, 2, 3), "no .npy file"],
    [npy(">f4", "1,", new Uint8Array(4)), "little endian"],
    [npy("|O", "1,", new Uint8Array(4)), "no tensor of numbers"],
    [npy("<f4", "2, 2", new Uint8Array(16), "True"), "ascontiguousarray"],
    [npy("<f4", "2, 2", new Uint8Array(15)), "cut off: 2 x 2 values of float32 need 16 bytes, and it has 15"],
  ])("says what is wrong", (bytes, sentence) => {
    expect(() => parseNpy(bytes, "x.npy")).toThrow(sentence);
  });
});

describe("tensorText", () => {
  it("writes nested lists that are read again", () => {
    const tensor = { dtype: "float32", shape: [2, 2], data: Float32Array.of(0.1, 2, -3.5, NaN) };
    expect(tensorText(tensor)).toBe('[[0.1, 2],\n[-3.5, "NaN"]]');
    expect(parseTensorText(tensorText(tensor), "x", "float32")).toEqual(tensor);
    const ids = { dtype: "int64", shape: [1, 3], data: BigInt64Array.of(1n, 49407n, 0n) };
    expect(parseTensorText(tensorText(ids), "x", "int64")).toEqual(ids);
    const mask = { dtype: "bool", shape: [2], data: Uint8Array.of(1, 0) };
    expect(parseTensorText(tensorText(mask), "x", "bool")).toEqual(mask);
    expect(parseTensorText('{"shape": [1, 2], "data": [1, 2]}', "x", "int32")).toEqual({ dtype: "int32", shape: [1, 2], data: Int32Array.of(1, 2) });
    expect(tensorText(tensor, 2)).toBe("0.1, 2, … 2 more");
  });
  it.each([
    ["[1, ", "are no JSON"],
    ["[[1], [2, 3]]", "different lengths"],
    ['["a"]', "must be numbers in lists"],
    ["[1.5]", "takes whole numbers (int64), not 1.5"],
  ])("%s", (text, sentence) => {
    expect(() => parseTensorText(text, "ids", "int64")).toThrow(sentence);
  });
  it("a type of numbers goes into another one", () => {
    expect(castTensor({ dtype: "float64", shape: [1], data: Float64Array.of(0.25) }, "x", "float32").data).toEqual(Float32Array.of(0.25));
    expect(() => castTensor({ dtype: "float32", shape: [1], data: Float32Array.of(1) }, "x", "float16")).toThrow('x.astype("float16")');
  });
});
