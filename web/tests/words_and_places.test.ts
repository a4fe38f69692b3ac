import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { fittingSize } from "../src/input_size";
import type { Axis } from "../src/manifest";
import { byKind } from "../page/word_list";
import { areaOf } from "../page/area";

test("a place is named by the third of the picture it lies in", () => {
  expect(areaOf(0, 0, 14, 14)).toBe("top left");
  expect(areaOf(7, 7, 14, 14)).toBe("centre");
  expect(areaOf(13, 7, 14, 14)).toBe("bottom");
  expect(areaOf(0, 0, 1, 1)).toBe("centre");
});

test("words of another vocabulary have no kind", () => {
  expect(byKind([["cat", "kitten"], ["dog"]])).toEqual([["Words", [["cat", "kitten"], ["dog"]]]]);
  expect(byKind([["red"], ["dog"]]).map(([name]) => name)).toEqual(["Colours", "Things"]);
});

type Pair = readonly [number, number];
const { axis, cases } = JSON.parse(readFileSync(join(__dirname, "../../tests/golden/fitting.json"), "utf8")) as {
  axis: Axis;
  cases: readonly { picture: Pair; size: Pair }[];
};
const inputs = [{ name: "images", dtype: "float32", shape: ["batch", 3, "height", "width"], role: "", kind: "image", low: 0, high: 1, fit: "stretch", classes: [] }];

test.each(cases)("a picture of $picture is asked at $size", ({ picture, size }) => {
  const [height, width] = picture;
  expect(fittingSize({ inputs, axes: { height: axis, width: axis } }, { width, height })).toEqual({ height: size[0], width: size[1] });
});

test("a model of one size gets that size", () => {
  const fixed = { ...axis, dynamic: false };
  expect(fittingSize({ inputs, axes: { height: fixed, width: fixed } }, { width: 9, height: 90 })).toEqual({ width: 224, height: 224 });
});
