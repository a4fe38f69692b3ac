import { expect, test } from "vitest";
import { percentile } from "../src/bench";

test("percentiles lie between neighbours", () => {
  expect(percentile([1, 2, 3, 4], 0.5)).toBe(2.5);
  expect(percentile([5], 0.99)).toBe(5);
});
