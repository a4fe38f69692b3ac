import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { Buckets } from "../src/buckets";

interface Flat { readonly shape: number[]; readonly values: number[] }
interface Golden {
  readonly index: object;
  readonly chosen: { readonly sizes: Record<string, number>; readonly file: string }[];
  readonly fitted: { readonly sizes: Record<string, number>; readonly file: string; readonly images: Flat; readonly padded: Flat; readonly query: Flat; readonly answers: Record<string, Flat>; readonly cut: Record<string, number[]> }[];
}
const golden = JSON.parse(readFileSync(new URL("../../tests/golden/buckets.json", import.meta.url), "utf-8")) as Golden;
const buckets = Buckets.parse(JSON.stringify(golden.index));
const floats = ({ shape, values }: Flat): { data: Float32Array; shape: number[] } => ({ data: Float32Array.from(values), shape });

test("the bucket is the one that Python and Kotlin choose", () => {
  for (const { sizes, file } of golden.chosen) expect([sizes, buckets.choose(sizes).file]).toEqual([sizes, file]);
});

test("pictures are padded and answers cut as in Python and Kotlin", () => {
  for (const { sizes, file, images, padded, query, answers, cut } of golden.fitted) {
    const bucket = buckets.choose(sizes);
    expect(bucket.file).toBe(file);
    expect(buckets.padded("images", floats(images), bucket)).toEqual(floats(padded));
    expect(buckets.padded("query", floats(query), bucket)).toEqual(floats(query));
    for (const [name, answer] of Object.entries(answers)) {
      const { data, shape } = buckets.cut(name, floats(answer), bucket, sizes);
      expect([name, ...data]).toEqual([name, ...(cut[name] ?? [])]);
      expect(shape.length).toBe(answer.shape.length);
      const whole = { data: BigInt64Array.from(answer.values.map(BigInt)), shape: answer.shape };
      expect([...buckets.cut(name, whole, bucket, sizes).data].map(Number)).toEqual(cut[name]);
    }
  }
});

test("what does not belong to a bucket is refused", () => {
  const bucket = buckets.choose({ height: 4, width: 4 });
  expect(() => buckets.padded("images", floats({ shape: [1, 1, 5, 4], values: Array<number>(20).fill(0) }), bucket)).toThrow('"images" of the shape [1, 1, 5, 4] does not go into the bucket "4x4.onnx"');
  expect(() => buckets.cut("mask", floats({ shape: [1, 4, 5], values: Array<number>(20).fill(0) }), bucket, { height: 4, width: 4 })).toThrow('"mask" of the shape [1, 4, 5] is none of');
  expect(() => Buckets.parse("{}")).toThrow("damaged, or of another version");
  expect(() => Buckets.parse("{")).toThrow("no JSON");
  expect(() => Buckets.parse(JSON.stringify({ ...golden.index, buckets: [{ file: "a", sizes: { height: 0 } }] }))).toThrow("damaged");
});
