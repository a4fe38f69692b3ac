import { expect, test } from "vitest";
import { parseManifest } from "../src/manifest";
import { largestBatch } from "../src/run_input";
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
