import { expect, test } from "vitest";
import { type GoldenCase, evaluateCase, parseGolden } from "../src/golden";
import { bytes } from "./bundle";

const expected = { relevance: Float32Array.of(0, 0.5, 1, 0.25), budgets: Int32Array.of(64, 232, 400, 148), indices: Int32Array.of(2, 1) };
const one: GoldenCase = { name: "one", words: [], image: { data: new Uint8Array(3), height: 1, width: 1 }, query: new Float32Array(1), expected };
const change = (part: Partial<typeof expected>): string => evaluateCase(one, { ...expected, ...part }, 1e-3, 1).reason;

test("the reference itself passes, and so does a rounding", () => {
  expect(evaluateCase(one, expected, 1e-3, 1)).toMatchObject({ pass: true, maxAbs: 0, lostMass: 0 });
  expect(change({ relevance: Float32Array.of(0.0005, 0.5, 1, 0.25), budgets: Int32Array.of(65, 232, 400, 148) })).toBe("");
});

test.each([
  ["a score that is off", { relevance: Float32Array.of(0.1, 0.5, 1, 0.25) }, "the largest score error is 0.10 (limit 0.0010)"],
  ["a score that is not a number", { relevance: Float32Array.of(NaN, 0.5, 1, 0.25) }, "not a finite number"],
  ["fewer scores", { relevance: Float32Array.of(0, 0.5, 1) }, "the number of scores is wrong"],
  ["worse patches", { indices: Int32Array.of(2, 0) }, "lose 33.3 % of the relevance (limit 2.0 %)"],
  ["one patch twice", { indices: Int32Array.of(2, 2) }, "lose 33.3 % of the relevance (limit 2.0 %)"],
  ["another number of patches", { indices: Int32Array.of(2) }, "the number of selected patches is 1 instead of 2"],
  ["a budget that is off", { budgets: Int32Array.of(64, 240, 400, 148) }, "the largest token budget error is 8 (limit 1.3)"],
])("%s fails with the reason", (_, part, sentence) => {
  expect(change(part)).toContain(sentence);
});

test("both sides not a number fails too", () => {
  const relevance = Float32Array.of(NaN, 0.5, 1, 0.25);
  expect(evaluateCase({ ...one, expected: { ...expected, relevance } }, { ...expected, relevance }, 1, 1).pass).toBe(false);
});

test("the file format", () => {
  const binary = new Uint8Array(64);
  new Float32Array(binary.buffer).set([0.5, 7], 3);
  const part = (offset: number, ...shape: number[]): object => ({ offset, shape });
  const rows = { name: "a", words: ["red"], image: part(0, 2, 2, 3), query: part(16, 1), expected: { relevance: part(12, 1), budgets: part(20, 1), indices: part(24, 1) } };
  const [read] = parseGolden(bytes(JSON.stringify({ format: 1, cases: [rows] })), binary, "u").cases;
  expect(read?.image).toMatchObject({ height: 2, width: 2 });
  expect([read?.expected.relevance[0], read?.query[0]]).toEqual([0.5, 7]);
  expect(() => parseGolden(bytes(JSON.stringify({ format: 3, cases: [] })), binary, "u")).toThrow("format 3");
  expect(() => parseGolden(bytes(JSON.stringify({ format: 1, cases: [{ ...rows, image: part(60, 2, 2, 3) }] })), binary, "u")).toThrow("past the end");
});
