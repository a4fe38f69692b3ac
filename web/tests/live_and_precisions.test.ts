import { describe, expect, it } from "vitest";
import { FrameRate, type Rate } from "../page/frame_rate";
import { answerOf, apart } from "../page/precisions";

describe("frame rate", () => {
  it("counts the frames of the last two seconds, and tells the median of their times at most twice a second", () => {
    const told: Rate[] = [];
    const rate = new FrameRate((found) => { told.push(found); });
    for (let frame = 0; frame < 10; frame++) rate.count(10_000 + 100 * frame - 30, 10_000 + 100 * frame);
    expect(told).toEqual([{ perSecond: 10, latency: 30 }, { perSecond: 10, latency: 30 }]);
    // Slower from here on: after two seconds nothing of the fast frames is left.
    for (let frame = 0; frame < 8; frame++) rate.count(11_400 + 500 * frame - 400, 11_400 + 500 * frame);
    expect(told.at(-1)).toEqual({ perSecond: 2, latency: 400 });
  });
});

describe("precisions", () => {
  const floats = { dtype: "float32", role: "logits", shape: [1, 2], data: new Float32Array([0.5, 0.25]) };
  const labels = { dtype: "int64", role: "labels", shape: [1], data: new BigInt64Array([3n]) };
  const none = { relevance: new Float32Array(), indices: new Int32Array() };

  it("compares the scores of patches, or else the first output of numbers", () => {
    const scored = answerOf({ relevance: new Float32Array([1, 0]), indices: new Int32Array([0]), outputs: { logits: floats } });
    expect(scored).toEqual({ name: "relevance", values: [1, 0], selected: [0] });
    expect(answerOf({ ...none, outputs: { label: labels, logits: floats } })).toEqual({ name: "logits", values: [0.5, 0.25], selected: [] });
    expect(answerOf({ ...none, outputs: { label: labels } })).toEqual({ name: "label", values: [3], selected: [] });
  });

  it("gives the largest difference and the selected patches that are the same", () => {
    const answer = (values: readonly number[], selected: readonly number[]): Parameters<typeof apart>[0] => ({ name: "relevance", values, selected });
    expect(apart(answer([0, 0.5, 1], [1, 2]), answer([0.25, 0.5, 0.875], [2, 0]))).toEqual({ largest: 0.25, shared: 1 });
    expect(apart(answer([0, 1], []), answer([0], [])).largest).toBeNaN();
  });
});
