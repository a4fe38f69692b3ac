import { expect, test } from "vitest";
import { ManifestError } from "../src/errors";
import { isPresent, parseThreshold } from "../src/presence";
import { bytes } from "./bundle";

test("the highest relevance decides", () => {
  expect(isPresent(new Float32Array([0.1, 0.5, 0.2]), 0.5)).toBe(true);
  expect(isPresent(new Float32Array([0.1, 0.49, 0.2]), 0.5)).toBe(false);
  expect(isPresent(new Float32Array([0.1]), null)).toBeNull();
});

test("a threshold is read, and anything else refused", () => {
  const written = (threshold: unknown, statistic = "max") => bytes(JSON.stringify({ output: "relevance", statistic, threshold }));
  expect(parseThreshold(written(0.47), "u")).toBe(0.47);
  for (const wrong of [written(0), written(1), written("0.5"), written(0.5, "mean"), bytes("{}")]) {
    expect(() => parseThreshold(wrong, "u")).toThrow(ManifestError);
  }
});
