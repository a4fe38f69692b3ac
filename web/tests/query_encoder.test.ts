import { expect, test } from "vitest";
import { ManifestError, QueryError } from "../src/errors";
import { QueryEncoder } from "../src/query_encoder";
import { bytes } from "./bundle";

const words = ["red", "circle", "striped", "square"];
const table = new Float32Array([1, 0, 3, 2, -1, 1, 0, 0.5]); // two values a word
const encoder = QueryEncoder.from(bytes(JSON.stringify({ dim: 2, words })), new Uint8Array(table.buffer), "u");

test("a query is the mean of its words' rows", () => {
  const { vector, known } = encoder.encode("  Red,CIRCLE!");
  expect([...vector]).toEqual([2, 1]);
  expect(known).toEqual(["red", "circle"]);
});

test("a query with an unknown word is refused by its name", () => {
  expect(() => encoder.encode("not red")).toThrow(QueryError);
  expect(() => encoder.encode("not red")).toThrow('the model does not know "not": ');
  expect(() => encoder.encode(["red", "frob frob"])).toThrow('does not know "frob": ');
  expect(encoder.unknown("red frob, circle not frob")).toEqual(["frob", "not"]);
});

test("a word twice counts twice, and a list is as good as a text", () => {
  expect([...encoder.encode("red red circle").vector][1]).toBeCloseTo(2 / 3, 6);
  expect(encoder.encode(["red", "circle"]).vector).toEqual(encoder.encode("red circle").vector);
});

test("nothing known is a sentence with the nearest words", () => {
  expect(() => encoder.encode("sqare")).toThrow(QueryError);
  expect(() => encoder.encode("sqare")).toThrow('did you mean "square"?');
  expect(() => encoder.encode("Größe")).toThrow('does not know "größe"');
  expect(() => encoder.encode("  ")).toThrow("the query is empty");
});

test("the nearest word is at most two letters off", () => {
  expect(encoder.nearest("circel")).toBe("circle");
  expect(encoder.nearest("re")).toBeUndefined();
  expect(encoder.nearest("elephant")).toBeUndefined();
});

test("completion keeps the vocabulary's order", () => {
  expect(encoder.complete("S")).toEqual(["striped", "square"]);
  expect(encoder.complete("")).toEqual([]);
});

test("a table of another size is refused", () => {
  expect(() => QueryEncoder.from(bytes('{"dim": 3, "words": ["a"]}'), new Uint8Array(8), "u")).toThrow(ManifestError);
});
