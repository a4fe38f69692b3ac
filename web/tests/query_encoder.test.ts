import { expect, test } from "vitest";
import { AssetError, ManifestError, QueryError } from "../src/errors";
import { QueryEncoder } from "../src/query_encoder";
import { bytes } from "./bundle";

const words = ["red", "circle", "striped", "square", "disc"];
const vocabulary = bytes(JSON.stringify({ dim: 2, scale: 0.5, offset: 1, words, rows: [0, 1, 2, 3, 1] }));
const table = new Uint8Array(new Int8Array([0, -2, 4, 2, -4, 0, -2, -1]).buffer); // two values a row: 1, 0; 3, 2; -1, 1; 0, 0.5
const encoder = QueryEncoder.from(vocabulary, () => Promise.resolve(table), "u");

test("a query is the mean of its words' rows", async () => {
  const { vector, known } = await encoder.encode("  Red,CIRCLE!");
  expect([...vector]).toEqual([2, 1]);
  expect(known).toEqual(["red", "circle"]);
});

test("words that mean the same share a row", async () => {
  expect((await encoder.encode("disc")).vector).toEqual((await encoder.encode("circle")).vector);
  expect(encoder.concepts()).toEqual([["red"], ["circle", "disc"], ["striped"], ["square"]]);
});

test("a query with an unknown word is refused by its name", async () => {
  await expect(encoder.encode("not red")).rejects.toThrow(QueryError);
  await expect(encoder.encode("not red")).rejects.toThrow('the model does not know "not": ');
  await expect(encoder.encode(["red", "frob frob"])).rejects.toThrow('does not know "frob": ');
  expect(encoder.unknown("red frob, circle not frob")).toEqual(["frob", "not"]);
});

test("a word twice counts twice, and a list is as good as a text", async () => {
  expect([...(await encoder.encode("red red circle")).vector][1]).toBeCloseTo(2 / 3, 6);
  expect((await encoder.encode(["red", "circle"])).vector).toEqual((await encoder.encode("red circle")).vector);
});

test("nothing known is a sentence with the nearest words", async () => {
  await expect(encoder.encode("sqare")).rejects.toThrow(QueryError);
  await expect(encoder.encode("sqare")).rejects.toThrow('did you mean "square"?');
  await expect(encoder.encode("Größe")).rejects.toThrow('does not know "größe"');
  await expect(encoder.encode("  ")).rejects.toThrow("the query holds no word");
});

test("the nearest word is at most two letters off", () => {
  expect(encoder.nearest("circel")).toBe("circle");
  expect(encoder.nearest("re")).toBeUndefined();
  expect(encoder.nearest("elephant")).toBeUndefined();
});

test("an unknown word that is a kind of a known one leads to it", async () => {
  const near = QueryEncoder.from(bytes(JSON.stringify({ dim: 2, scale: 0.5, offset: 1, words, rows: [0, 1, 2, 3, 1], near: { circle: ["dot", "oval"] } })), () => Promise.resolve(table), "u");
  expect([near.kindOf("oval"), near.kindOf("red"), encoder.kindOf("oval")]).toEqual(["circle", undefined, undefined]);
  expect(near.unknown("red oval")).toEqual(["oval"]);
  expect(near.withKinds("Red Oval, frob")).toBe("Red circle, frob");
  await expect(near.encode("red oval")).rejects.toThrow('the model does not know "oval": did you mean "circle"?');
});

test("completion keeps the vocabulary's order", () => {
  expect(encoder.complete("S")).toEqual(["striped", "square"]);
  expect(encoder.complete("")).toEqual([]);
});

test("a table of another size is refused", async () => {
  const wrong = QueryEncoder.from(bytes('{"dim": 3, "scale": 1, "offset": 0, "words": ["a"], "rows": [0]}'), () => Promise.resolve(new Uint8Array(8)), "u");
  await expect(wrong.ready()).rejects.toThrow(ManifestError);
});

test("a vocabulary without the rows of its words is refused", () => {
  for (const rows of ["", ', "rows": [0, 1]']) {
    const old = bytes(`{"dim": 2, "scale": 1, "offset": 0, "words": ["a"]${rows}}`);
    expect(() => QueryEncoder.from(old, () => Promise.resolve(table), "u")).toThrow("export the bundle again");
  }
});

test("the table is fetched when it is needed, once, and again after a failure", async () => {
  let [fetched, fails] = [0, true];
  const late = QueryEncoder.from(vocabulary, () => {
    fetched++;
    return fails ? Promise.reject(new AssetError("offline")) : Promise.resolve(table);
  }, "u");
  expect(late.unknown("red frob")).toEqual(["frob"]);
  await expect(late.encode("frob")).rejects.toThrow(QueryError);
  expect(fetched).toBe(0);
  await expect(late.encode("red")).rejects.toThrow("offline");
  fails = false;
  await Promise.all([late.encode("red"), late.ready()]);
  expect(fetched).toBe(2);
});
