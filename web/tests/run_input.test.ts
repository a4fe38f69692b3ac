import { expect, test } from "vitest";
import { parseManifest } from "../src/manifest";
import { checkTensors, largestBatch } from "../src/run_input";
import { manifest as written } from "./bundle";

const manifest = parseManifest({ ...written(), axes: { ...(written().axes as object), batch: { default: 1, minimum: 1, maximum: 8, multiple_of: 1, dynamic: true } } }, "a");
const variant = { name: "fp32", precision: "fp32", path: "onnx/model.onnx", target: "onnx" } as const;

test("a batch is as large as the model's axis allows", () => {
  expect(largestBatch(manifest, variant)).toBe(8);
  const fixed = { ...manifest, axes: { ...manifest.axes, batch: { default: 1, minimum: 1, maximum: 8, multiple_of: 1, dynamic: false } } };
  expect(largestBatch(fixed, variant)).toBe(1);
});

test("there is no batch where an answer would not be that of a single run, or could not be told from others", () => {
  expect(largestBatch(manifest, { ...variant, target: "onnx-int8-dynamic" })).toBe(1);
  const boxes = { ...manifest.outputs[0], name: "boxes", shape: ["found", 4] } as (typeof manifest.outputs)[number];
  expect(largestBatch({ ...manifest, outputs: [...manifest.outputs, boxes] }, variant)).toBe(1);
  const pairs = { ...boxes, shape: ["batch", "batch"] };
  expect(largestBatch({ ...manifest, outputs: [pairs] }, variant)).toBe(1);
});

const images = { dtype: "float32", shape: [1, 3, 224, 224], data: new Float32Array(3 * 224 * 224) };
const queries = { dtype: "float32", shape: [1, 768], data: new Float32Array(768) };

test("tensors that the model takes are taken", () => {
  expect(() => { checkTensors({ images, queries }, manifest); }).not.toThrow();
});

test.each([
  ["none", undefined, "feed() needs an object of tensors: images, queries"],
  ["a missing one", { images }, 'the model input "queries" is missing: pass { dtype: "float32", shape: [batch, 768], data: Float32Array }'],
  ["one too many", { images, queries, x: images }, 'the model has no input "x": its inputs are images, queries'],
  ["a plain array", { images, queries: [1, 2] }, 'the input "queries" must be { dtype: "float32"'],
  ["another type", { images, queries: { ...queries, dtype: "int64" } }, 'the input "queries" must be { dtype: "float32"'],
  ["another rank", { images, queries: { ...queries, shape: [768] } }, 'has the shape [768], but the model accepts 1 to 8 in steps of 1 x 768'],
  ["another size", { images: { ...images, shape: [1, 3, 225, 224] }, queries }, "1 to 8 in steps of 1 x 3 x 96 to 512 in steps of 16"],
  ["too large a batch", { images, queries: { ...queries, shape: [9, 768] } }, "has the shape [9, 768]"],
  ["too few values", { images, queries: { ...queries, data: new Float32Array(3) } }, 'the data of the input "queries" must be 768 values in a Float32Array'],
  ["another array", { images, queries: { ...queries, data: new Float64Array(768) } }, "must be 768 values in a Float32Array"],
])("%s is refused with what is taken", (_, inputs, sentence) => {
  expect(() => { checkTensors(inputs as never, manifest); }).toThrow(sentence);
});

test("a size that is a sum of axes is that of the sizes that are given", () => {
  const axis = { default: 1, minimum: 0, maximum: 8, multiple_of: 1, dynamic: true };
  const [ids, past, mask] = [["n"], ["past"], ["past+n+1"]].map((shape, at) => ({ ...manifest.inputs[0], name: "ipm"[at] ?? "", dtype: "float32", shape })) as typeof manifest.inputs[number][];
  const decoder = { inputs: [ids, past, mask] as (typeof manifest.inputs)[number][], axes: { n: axis, past: axis } };
  const sized = (...sizes: number[]): Parameters<typeof checkTensors>[0] =>
    Object.fromEntries(sizes.map((size, at) => ["ipm"[at] ?? "", { dtype: "float32", shape: [size], data: new Float32Array(size) }]));
  expect(() => { checkTensors(sized(2, 0, 3), decoder); }).not.toThrow();
  expect(() => { checkTensors(sized(2, 3, 5), decoder); }).toThrow("a size of the inputs is 5, but the model takes past+n+1 there, which is 6");
});
