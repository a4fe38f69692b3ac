import { expect, test } from "vitest";
import { fittingSize } from "../src/input_size";
import { byKind, replaceOfKind } from "../page/word_list";
import { areaOf } from "../page/area";

test("a place is named by the third of the picture it lies in", () => {
  expect(areaOf(0, 0, 14, 14)).toBe("top left");
  expect(areaOf(7, 7, 14, 14)).toBe("centre");
  expect(areaOf(13, 7, 14, 14)).toBe("bottom");
  expect(areaOf(0, 0, 1, 1)).toBe("centre");
});

test("a word of a kind replaces another one, and words stand in the usual order", () => {
  expect(replaceOfKind(["red", "circle"], "blue")).toEqual(["blue", "circle"]);
  expect(replaceOfKind(["circle"], "large")).toEqual(["large", "circle"]);
  expect(replaceOfKind(["large", "circle"], "large")).toEqual(["circle"]);
  expect(replaceOfKind(["cat"], "red")).toEqual(["cat", "red"]);
});

test("words of another vocabulary have no kind", () => {
  expect(byKind([["cat", "kitten"], ["dog"]])).toEqual([["Words", [["cat", "kitten"], ["dog"]]]]);
  expect(byKind([["red"], ["dog"]]).map(([name]) => name)).toEqual(["Colours", "Other words"]);
});

const axis = { default: 224, minimum: 96, maximum: 512, multiple_of: 16, dynamic: true };
const inputs = [{ name: "images", dtype: "float32", shape: ["batch", 3, "height", "width"], role: "", kind: "image", low: 0, high: 1, fit: "stretch", classes: [] }];

test.each([[400, 200, 320, 160], [100, 100, 224, 224], [300, 400, 192, 256], [5000, 100, 512, 96]])(
  "a picture of %i x %i is asked at %i x %i",
  (width, height, w, h) => {
    expect(fittingSize({ inputs, axes: { height: axis, width: axis } }, { width, height })).toEqual({ width: w, height: h });
  },
);

test("a model of one size gets that size", () => {
  const fixed = { ...axis, dynamic: false };
  expect(fittingSize({ inputs, axes: { height: fixed, width: fixed } }, { width: 9, height: 90 })).toEqual({ width: 224, height: 224 });
});
