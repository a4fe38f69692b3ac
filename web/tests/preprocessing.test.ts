import { expect, test } from "vitest";
import { checkTensor, normalise } from "../src/preprocessing";

test("bytes become planes in the declared range", () => {
  const image = { data: Uint8Array.of(0, 51, 255, 255, 0, 102), height: 1, width: 2 };
  expect([...normalise(image, 0, 1)].map((v) => Number(v.toFixed(3)))).toEqual([0, 1, 0.2, 0, 1, 0.4]);
  expect([...normalise(image, -1, 1)][0]).toBe(-1);
  expect(() => { checkTensor({ data: new Float32Array(5), height: 1, width: 2 }); }).toThrow("has 5 values, but 3 x 1 x 2 needs 6");
});
