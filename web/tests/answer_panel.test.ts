import { describe as group, expect, test } from "vitest";
import { classShares, describe } from "../page/answer_panel";
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
    expect(describe({ role: "labels", dtype: "int64", shape: [1], data: new BigInt64Array([7n]) })).toBe("7");
  });
});
