import { expect, test } from "vitest";
import { type Capabilities, threadCount } from "../src/device";
import { checkOptions, firstDevice, orderCandidates, remaining } from "../src/candidates";

const plain: Capabilities = { wasm: true, jspi: true, shared: false, cores: 8, gpu: null };
const gpu: Capabilities = { ...plain, gpu: { name: "a", software: false } };
const software: Capabilities = { ...plain, gpu: { name: "swiftshader", software: true } };
const all = ["fp32", "fp16", "q8"] as const;
const names = (of: ReturnType<typeof orderCandidates>): string[] => of.candidates.map((r) => `${r.device} ${r.dtype} ${String(r.threads)}`);

test.each([
  ["auto", "auto", plain, ["wasm q8 1", "wasm fp32 1"]],
  ["auto", "auto", gpu, ["webgpu fp16 1", "webgpu fp32 1", "wasm q8 1", "wasm fp32 1"]],
  ["auto", "q8", gpu, ["webgpu fp32 1", "webgpu fp16 1", "wasm q8 1", "wasm fp32 1"]],
  ["auto", "auto", software, ["wasm q8 1", "wasm fp32 1"]],
  ["webgpu", "fp32", software, ["webgpu fp32 1", "webgpu fp16 1", "wasm fp32 1"]],
  ["wasm", "fp16", gpu, ["wasm fp16 1", "wasm fp32 1"]],
] as const)("%s, %s", (device, dtype, has, expected) => {
  const tried = names(orderCandidates(device, dtype, has, all));
  expect(tried.slice(0, expected.length).filter((r) => expected.includes(r as never))).toEqual(expected);
});

test("WebNN is used where it was chosen and the browser has it; else its reason is told", () => {
  const has = { ...gpu, webnn: "" };
  expect(names(orderCandidates("webnn", "auto", has, all))).toEqual(["webnn fp32 1", "webnn fp16 1", "wasm q8 1", "wasm fp32 1"]);
  expect(names(orderCandidates("auto", "auto", has, all)).filter((name) => name.startsWith("webnn"))).toEqual([]);
  const refused = orderCandidates("webnn", "fp16", { ...gpu, webnn: "no context" }, all);
  expect(names(refused)).toEqual(["wasm fp16 1", "wasm fp32 1"]);
  expect(refused.unavailable).toEqual([{ device: "webnn", dtype: "fp16", code: "BACKEND", reason: "no context" }]);
  expect([firstDevice("webnn", has), firstDevice("webnn", { ...gpu, webnn: "no context" })]).toEqual(["webnn", "wasm"]);
});

test("asyncify brings WebGPU to browsers without JSPI, in bundles that have it", () => {
  const has = { ...gpu, jspi: false };
  expect(orderCandidates("auto", "fp32", has, ["fp32"]).candidates.map((r) => r.build)).toEqual(["wasm"]);
  expect(orderCandidates("auto", "fp32", has, ["fp32"], true).candidates.map((r) => r.build)).toEqual(["asyncify", "wasm"]);
  expect(orderCandidates("auto", "fp32", gpu, ["fp32"], true).candidates[0]?.build).toBe("jspi");
});

test("threads are tried first, and none after", () => {
  const has = { ...plain, shared: true, cores: 4 };
  expect(names(orderCandidates("wasm", "fp32", has, ["fp32"]))).toEqual(["wasm fp32 3", "wasm fp32 1"]);
  expect(threadCount({ shared: true, cores: 16 })).toBe(4);
  expect(threadCount({ shared: true, cores: 1 })).toBe(1);
  expect(threadCount({ shared: false, cores: 16 })).toBe(1);
});

test("what cannot be tried is listed with the reason", () => {
  expect(orderCandidates("webgpu", "auto", plain, all).unavailable[0]?.reason).toContain("no GPU adapter");
  expect(orderCandidates("webgpu", "auto", { ...gpu, jspi: false }, all).unavailable[0]?.reason).toContain("JSPI");
});

test("a wrong result excludes the precision, a failed start the backend", () => {
  const { candidates } = orderCandidates("auto", "auto", { ...gpu, shared: true, cores: 3 }, all);
  const after = (i: number, stage: "start" | "open" | "selfTest" | "fetch", code: string): string[] => {
    const failed = candidates[i];
    return failed ? remaining(candidates, failed, stage, code).map((r) => `${r.device} ${r.dtype} ${String(r.threads)}`) : [];
  };
  const wasm = ["wasm q8 2", "wasm q8 1", "wasm fp32 2", "wasm fp32 1"];
  expect(after(0, "start", "BACKEND")).toEqual(wasm);
  expect(after(0, "selfTest", "SELF_TEST")).toEqual(["webgpu fp32 1", ...wasm]);
  expect(after(0, "selfTest", "TIME_OUT")).toEqual(wasm);
  expect(after(2, "start", "TIME_OUT")).toEqual(["wasm q8 1", "wasm fp32 1"]);
  expect(after(2, "selfTest", "SELF_TEST")).toEqual(["wasm fp32 2", "wasm fp32 1"]);
  expect(after(2, "fetch", "HASH_MISMATCH")).toEqual(["wasm fp32 2", "wasm fp32 1"]);
});

test("unknown names are refused with the possible ones", () => {
  expect(() => { checkOptions("gpu", "auto"); }).toThrow('unknown device "gpu": possible values are "auto", "webgpu", "webnn", "wasm"');
  expect(() => { checkOptions("auto", "int8"); }).toThrow('"fp32", "fp16", "q8"');
  expect(() => orderCandidates("wasm", "q8", plain, ["fp32"])).toThrow('no model for the dtype "q8": possible values are "auto", "fp32"');
  expect(() => firstDevice("auto", { ...plain, wasm: false })).toThrow("no WebAssembly");
});
