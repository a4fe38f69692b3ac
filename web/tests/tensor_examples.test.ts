import { expect, it } from "vitest";
import { examplesOf, largestDifference } from "../page/tensor_examples";
import type { Bundle } from "../src/index";

const AXES = { batch: { default: 1, minimum: 1, maximum: 8, multiple_of: 1, dynamic: true } };

it("without golden vectors the first inputs are the middle of what is declared", async () => {
  const inputs = [
    { name: "x", dtype: "float64", shape: ["batch", 2], low: -1, high: 3 },
    { name: "ids", dtype: "int64", shape: ["batch", 1], low: 0, high: 9 },
    { name: "half", dtype: "float16", shape: [2], low: 0, high: 1 },
  ];
  const bundle = { manifest: { inputs, axes: AXES, bundle: { golden: "", variants: [] } } } as unknown as Bundle;
  const [example] = await examplesOf(bundle);
  expect(example?.expected).toBeUndefined();
  expect(example?.inputs).toEqual({
    x: { dtype: "float64", shape: [1, 2], data: Float64Array.of(1, 1) },
    ids: { dtype: "int64", shape: [1, 1], data: BigInt64Array.of(4n) },
    half: { dtype: "float16", shape: [2], data: new Uint16Array(2) },
  });
});

it("the largest difference is over the values that golden vectors hold, and infinite for another shape", () => {
  const expected = { y: { dtype: "float32", shape: [4], data: Float32Array.of(1, 3), step: 2 } };
  const output = (...values: number[]): object => ({ y: { dtype: "float32", shape: [values.length], data: Float32Array.from(values) } });
  expect(largestDifference(expected, output(1, 9, 3.5, 9) as never)).toBe(0.5);
  expect(largestDifference(expected, output(1, 2) as never)).toBe(Infinity);
});
