import { describe as group, expect, test } from "vitest";
import { areasOf, classesOfPoints, gridOf } from "../page/answer_layers";
import { boxesOf } from "../page/boxes";
import { classShares } from "../page/class_shares";
import { cosine } from "../page/similarity";
import { describe } from "../page/tensor_words";
import type { NamedOutput } from "../src/index";

function output(role: string, values: number[], shape = [1, values.length]): NamedOutput {
  return { role, dtype: "float32", shape, data: new Float32Array(values) };
}

group("classShares", () => {
  test("puts the likeliest class first, by name where it has one", () => {
    const shares = classShares(output("logits", [0, Math.log(3), 0]), ["cat", "dog"]);
    expect(shares.map(({ name }) => name)).toEqual(["dog", "cat", "class 2"]);
    expect(shares.map(({ share }) => share.toFixed(3))).toEqual(["0.600", "0.200", "0.200"]);
  });

  test("takes probabilities as they are and large logits without overflow", () => {
    expect(classShares(output("probabilities", [0.25, 0.75]), [])[0]).toEqual({ place: 1, name: "class 1", share: 0.75 });
    expect(classShares(output("logits", [1000, 0]), [])[0]?.share).toBe(1);
  });

  test("names no class of outputs that are no distribution over classes", () => {
    expect(classShares(output("tensor", [1, 2]), [])).toEqual([]);
    expect(classShares(output("logits", [1, 2, 3, 4], [1, 2, 2]), [])).toEqual([]);
    expect(classShares(output("logits", [1]), [])).toEqual([]);
  });
});

group("describe", () => {
  test("lists a small output and sums up a large one", () => {
    expect(describe(output("boxes", [1, 2.5, -3, 0.123456]))).toBe("1, 2.500, -3, 0.1235");
    expect(describe(output("embedding", [0, 1, 2, 3, 4, 5, 6, 7, 8]))).toBe("1 x 9 values from 0 to 8, mean 4");
    expect(describe({ shape: [1], data: new BigInt64Array([7n]) })).toBe("7");
  });
});

group("points", () => {
  test("have the likeliest of their classes, and areas by name", () => {
    const points = classesOfPoints(output("logits", [0, 5, 1, 1, 4, 0, 9, 0], [1, 2, 2, 2]));
    expect([...(points?.classes ?? [])]).toEqual([1, 0, 1, 0]);
    expect(areasOf(new Int32Array([2, 0, 2, 2]), ["sky"]).map(({ name, share }) => [name, share])).toEqual([["class 2", 0.75], ["sky", 0.25]]);
  });

  test("are not seen in other outputs", () => {
    expect(classesOfPoints(output("logits", [1, 2, 3]))).toBeUndefined();
    expect(classesOfPoints(output("tensor", [0, 5, 1, 1], [1, 1, 2, 2]))).toBeUndefined();
    expect(gridOf([1, 3, 4, 4])).toBeUndefined();
    expect(gridOf([1, 1, 4, 5])).toEqual({ height: 4, width: 5 });
  });
});

group("boxesOf", () => {
  test("takes pixels and shares, drops unsure and empty ones, and puts the surest first", () => {
    const boxes = output("boxes", [0, 0, 50, 100, 0.6, 10, 10, 60, 20, 0.9, 1, 1, 2, 2, 0.1, 5, 5, 5, 9, 0.99], [1, 4, 5]);
    const found = boxesOf("boxes", { boxes }, {}, { height: 100, width: 100 });
    expect(found.map(({ left, top, right, bottom, score }) => [left, top, right, bottom, score?.toFixed(1)])).toEqual([[0.1, 0.1, 0.6, 0.2, "0.9"], [0, 0, 0.5, 1, "0.6"]]);
    const shares = boxesOf("b", { b: output("boxes", [0.1, 0.2, 0.3, 0.4], [1, 4]) }, {}, { height: 9, width: 9 });
    expect(shares[0]?.right.toFixed(1)).toBe("0.3");
  });

  test("names them by the classes of the same boxes", () => {
    const outputs = { boxes: output("boxes", [0, 0, 1, 1], [1, 1, 4]), kinds: output("probabilities", [0.2, 0.8], [1, 1, 2]) };
    expect(boxesOf("boxes", outputs, { kinds: ["cat", "dog"] }, { height: 9, width: 9 })[0]).toMatchObject({ name: "dog", score: Math.fround(0.8) });
  });
});

test("cosine", () => {
  expect(cosine([1, 0], [0, 2])).toBe(0);
  expect(cosine([3, 4], [6, 8])).toBeCloseTo(1);
  expect(cosine([1], [1, 2])).toBeNaN();
});

test("values that are no numbers are told", () => {
  expect(describe({ shape: [9], data: new Float32Array([1, 2, NaN, 3, 4, 5, 6, 7, Infinity]) })).toContain("2 of them no finite number");
  expect(classShares(output("logits", [NaN, 1]), [])).toEqual([]);
});
