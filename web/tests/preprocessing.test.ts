import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { checkTensor, fitted, normalise } from "../src/preprocessing";

test("bytes become planes in the declared range", () => {
  const image = { data: Uint8Array.of(0, 51, 255, 255, 0, 102), height: 1, width: 2 };
  expect([...normalise(image, 0, 1)].map((v) => Number(v.toFixed(3)))).toEqual([0, 1, 0.2, 0, 1, 0.4]);
  expect([...normalise(image, -1, 1)][0]).toBe(-1);
  expect(() => { checkTensor({ data: new Float32Array(5), height: 1, width: 2 }); }).toThrow("has 5 values, but 3 x 1 x 2 needs 6");
});

test("a picture is placed as in Python, Kotlin and Swift", () => {
  interface Case { readonly pixels: { readonly shape: number[] }; readonly size: number[]; readonly fit: string; readonly part: number[]; readonly place: number[] }
  const golden = JSON.parse(readFileSync(new URL("../../tests/golden/preprocessing.json", import.meta.url), "utf-8")) as { cases: Case[] };
  for (const { pixels, size, fit, part, place } of golden.cases) {
    expect(fitted(pixels.shape[0] ?? 0, pixels.shape[1] ?? 0, size[0] ?? 0, size[1] ?? 0, fit)).toEqual({ part, place });
  }
  expect(new Set(golden.cases.map(({ fit }) => fit)).size).toBe(3);
  expect(() => fitted(1, 1, 1, 1, "pad")).toThrow("not known");
});
