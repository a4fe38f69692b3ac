import { expect, test } from "vitest";
import { type GoldenCase, evaluateCase, parseGolden, widest } from "../src/golden";
import type { RawTensor } from "../src/tensor";
import { bytes } from "./bundle";

const floats = (...values: number[]): RawTensor => ({ dtype: "float32", shape: [1, values.length], data: Float32Array.from(values) });
const labels = (...values: number[]): RawTensor => ({ dtype: "int64", shape: [1, values.length], data: BigInt64Array.from(values, BigInt) });
const expected = {
  mask: { ...floats(0, 0.5, 1, 0.25), step: 1 },
  label: { ...labels(3, 4), step: 1 },
  top: { ...labels(2, 1), step: 1, of: "mask" },
};
const one: GoldenCase = { name: "one", image: null, inputs: {}, expected };
const allowed = { mask: { max_abs: 0.1, rms: 0.03 }, label: { wrong: 0.01 }, top: { lost_mass: 0.02 } };
const reason = (part: Record<string, RawTensor>): string => evaluateCase(one, { ...expected, ...part }, allowed, 1).reason;

test("the reference itself passes, and so does a rounding", () => {
  expect(evaluateCase(one, expected, allowed, 1)).toMatchObject({ pass: true, error: 0 });
  expect(evaluateCase(one, { ...expected, mask: floats(0.05, 0.5, 1, 0.25) }, allowed, 1)).toMatchObject({ pass: true, output: "mask", metric: "rms", limit: 0.03 });
  expect(reason({ top: labels(1, 2) })).toBe("");
});

test.each([
  ["one value that is off", { mask: floats(0.2, 0.5, 1, 0.25) }, 'the largest error of the output "mask" is 0.20 (limit 0.10)'],
  ["all values a little", { mask: floats(0.04, 0.54, 1.04, 0.29) }, 'the root mean square error of the output "mask" is 0.040 (limit 0.030)'],
  ["another label", { label: labels(3, 5) }, 'the share of wrong values of the output "label" is 0.50 (limit 0.010)'],
  ["worse places", { top: labels(2, 0) }, 'the lost share of the scores of the output "top" is 0.33 (limit 0.020)'],
  ["one place twice", { top: labels(2, 2) }, 'the lost share of the scores of the output "top" is 0.33'],
  ["another number of places", { top: labels(2) }, 'the output "top" is missing, has another shape'],
  ["not a number", { mask: floats(NaN, 0.5, 1, 0.25) }, 'the output "mask" is missing, has another shape or is not finite'],
  ["another shape", { mask: { ...floats(0, 0.5, 1, 0.25), shape: [4, 1] } }, 'the output "mask" is missing, has another shape'],
])("%s fails with the reason", (_, part, sentence) => {
  expect(reason(part)).toContain(sentence);
});

test("both sides not a number fails too", () => {
  const mask = { ...floats(NaN, 0.5, 1, 0.25), step: 1 };
  expect(evaluateCase({ ...one, expected: { mask } }, { mask }, allowed, 1).pass).toBe(false);
});

test("an output that is missing, and one without limits, fail", () => {
  expect(evaluateCase(one, { mask: expected.mask, top: expected.top }, allowed, 1).reason).toContain('"label" is missing');
  expect(evaluateCase(one, { ...expected, label: labels(3, 5) }, { mask: allowed.mask, top: allowed.top }, 1).pass).toBe(false);
  expect(evaluateCase(one, { ...expected, mask: floats(0, 0.5, 1, 0.26) }, {}, 1).pass).toBe(false);
});

test("of a large output every step-th value is compared", () => {
  const thin: GoldenCase = { ...one, expected: { mask: { dtype: "float32", shape: [1, 4], data: Float32Array.of(0, 1), step: 2 } } };
  expect(evaluateCase(thin, { mask: floats(0, 9, 1, 9) }, allowed, 1).pass).toBe(true);
  expect(evaluateCase(thin, { mask: floats(0, 9, 2, 9) }, allowed, 1).pass).toBe(false);
});

test("of two tables the widest limits hold", () => {
  const { top, ...own } = allowed;
  expect(widest([own, { mask: { max_abs: 0.2, rms: 0.01 }, top }])).toEqual({ mask: { max_abs: 0.2, rms: 0.03 }, label: { wrong: 0.01 }, top });
});

test("the file format", () => {
  const binary = new Uint8Array(64);
  new BigInt64Array(binary.buffer, 16, 2).set([7n, -1n]);
  new Float32Array(binary.buffer, 32, 2).set([0.5, 2]);
  const part = (dtype: string, offset: number, step: number, ...shape: number[]): object => ({ dtype, offset, step, shape });
  const row = { name: "a", image: part("uint8", 0, 1, 2, 2, 3), inputs: { tokens: part("int64", 16, 1, 1, 2) }, expected: { y: part("float32", 32, 2, 1, 3) } };
  const read = (cases: object[], format = 3) => parseGolden(bytes(JSON.stringify({ format, limits: { q8: allowed }, cases })), binary, "u");
  const { cases, limits } = read([row]);
  expect(cases[0]?.image).toMatchObject({ height: 2, width: 2 });
  expect(cases[0]?.inputs.tokens?.data).toEqual(BigInt64Array.of(7n, -1n));
  expect(cases[0]?.expected.y).toMatchObject({ shape: [1, 3], step: 2, data: Float32Array.of(0.5, 2) });
  expect(limits.q8).toEqual(allowed);
  expect(() => read([row], 2)).toThrow("format 2");
  expect(() => read([{ ...row, inputs: { x: part("complex", 0, 1, 1) } }])).toThrow("dtype complex");
  expect(() => read([{ ...row, expected: { y: part("float32", 60, 1, 2) } }])).toThrow("past the end");
});
