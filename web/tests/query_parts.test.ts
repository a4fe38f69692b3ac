import { describe, expect, it } from "vitest";
import { cutWords } from "../page/answer_words";
import { mapOf } from "../page/map_renderer";
import { kindsOf, queryParts, replaceOfKind } from "../page/query_parts";
import type { Result } from "../src/index";

describe("queryParts", () => {
  const kinds = kindsOf([["circle", "disc", "discs"], ["square", "squares"], ["object"], ["cat", "kitten"], ["dog"]]);
  it.each([
    ["red circle", ["red circle"]],
    ["large red striped circle", ["large red striped circle"]],
    ["red circle, blue square", ["red circle", "blue square"]],
    ["red circle and blue square", ["red circle", "blue square"]],
    ["red circle and", ["red circle"]],
    ["red circle blue square", ["red circle", "blue square"]],
    ["red disc squares", ["red disc", "squares"]],
    ["Red Blue circle", ["Red", "Blue circle"]],
    ["small red kitten", ["small red kitten"]],
    ["cat dog", ["cat", "dog"]],
    ["sandy orange", ["sandy orange"]],
    ["", []],
  ])("%s", (text, parts) => {
    expect(queryParts(text, kinds)).toEqual(parts);
  });
});

describe("replaceOfKind", () => {
  const kinds = kindsOf([["large"], ["red"], ["blue"], ["circle", "disc"], ["object"], ["cat"], ["dog"]]);
  it.each([
    [["red", "circle"], "blue", ["blue", "circle"]],
    [["red", "disc"], "circle", ["red", "circle"]],
    [["circle"], "large", ["large", "circle"]],
    [["large", "circle"], "large", ["circle"]],
    [["cat"], "red", ["red", "cat"]],
    [["red", "cat"], "dog", ["red", "dog"]],
  ])("%s and %s", (query, word, made) => {
    expect(replaceOfKind(query, word, kinds)).toEqual(made);
  });

  it("another model's words stay beside each other", () => {
    expect(replaceOfKind(["quick"], "fox", kindsOf([["quick"], ["fox"]]))).toEqual(["quick", "fox"]);
  });
});

it("long words are cut in sentences", () => {
  expect(cutWords(`red ${"a".repeat(120)} circle`)).toBe(`red ${"a".repeat(24)}… circle`);
  expect(cutWords("b".repeat(24))).toBe("b".repeat(24));
});

it("what reaches the threshold is outlined, and without one what the model selects", () => {
  const result = { rows: 2, columns: 2, relevance: Float32Array.of(0.1, 0.9, 0.8, 0.3), indices: Int32Array.of(1, 2, 3), budgets: new Int32Array() };
  expect([...Array.from(mapOf(result as unknown as Result, 0.8125).outlined)]).toEqual([1]);
  expect([...Array.from(mapOf(result as unknown as Result, 0.95).outlined)]).toEqual([]);
  expect([...Array.from(mapOf(result as unknown as Result, null).outlined)]).toEqual([1, 2, 3]);
});
