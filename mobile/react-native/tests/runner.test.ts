import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import type { Code } from "@edgekit/web/types";
import { FakeModule, INFO } from "./fake_module.js";

const modules = (globalThis as unknown as { readonly turboModules: Record<string, unknown> }).turboModules;
let native = new FakeModule();
modules.Edgekit = new Proxy({}, { get: (_, name) => (native as unknown as Record<string | symbol, () => unknown>)[name]?.bind(native) });
const { EdgekitError, load } = await import("../src/index.js");

beforeEach(() => {
  native = new FakeModule();
});

const failure = (code: Code, message?: string) => (error: unknown) =>
  error instanceof EdgekitError && error.code === code && (message === undefined || error.message === message);

test("load tests the device unless told otherwise, and tells the facts", async () => {
  const runner = await load("small");
  await load("file:///models/small", { target: "litert", selfTest: false });
  assert.deepEqual(native.calls, [["load", "small", null, true], ["load", "file:///models/small", "litert", false]]);
  assert.deepEqual([runner.info.verified, runner.info.selfTest?.pass, runner.info.selfTest?.device], [true, true, INFO.device]);
  assert.deepEqual([runner.words, runner.threshold, runner.info.targets], [["red", "circle"], 0.5, ["onnx", "litert"]]);
});

test("a model that no place verified is not called verified, and without a test there is no report", async () => {
  native.info = { ...INFO, verdicts: [{ place: "local", status: "rejected" }] };
  const { info } = await load("small", { selfTest: false });
  assert.deepEqual([info.verified, info.selfTest], [false, null]);
});

test("an address, words and a size go to the module, and its lists come back as arrays and rectangles", async () => {
  const runner = await load("small");
  const result = await runner.run({ image: "file:///a.jpg", query: ["red", "circle"], k: 1, size: { height: 16, width: 32 } });
  assert.deepEqual(native.calls.at(-1), ["run", 7, "file:///a.jpg", [], "red circle", [], 1, [16, 32]]);
  assert.deepEqual(result.relevance, Float32Array.of(0.25, 0.75));
  assert.deepEqual([result.budgets, result.indices], [Int32Array.of(148, 316), Int32Array.of(1)]);
  assert.deepEqual([result.size, result.part], [{ height: 16, width: 32 }, { top: 0, left: 5, height: 20, width: 40 }]);
  assert.deepEqual([result.known, result.present], [["red"], true]);
});

test("pixels go as Base64, with any number of bytes at the end, and a vector as numbers", async () => {
  const runner = await load("small");
  for (const [height, width] of [[1, 1], [1, 2], [2, 2], [3, 5]] as const) {
    for (const channels of [3, 4]) {
      const data = Uint8Array.from({ length: channels * height * width }, (_, i) => (37 * i + 201) % 256);
      await runner.run({ image: { data, height, width }, query: Float32Array.of(0.5, -1) });
      assert.deepEqual(native.calls.at(-1), ["run", 7, Buffer.from(data).toString("base64"), [height, width], null, [0.5, -1], 0, []]);
    }
  }
  await assert.rejects(runner.run({ image: { data: new Uint8Array(7), height: 1, width: 2 } }), failure("IMAGE", "7 bytes are not the RGB or RGBA pixels of 1 x 2"));
});

test("several pictures run one after the other", async () => {
  const runner = await load("small");
  const results = await runner.run([{ image: "file:///a.jpg" }, { image: "file:///b.jpg" }]);
  assert.equal(results.length, 2);
  assert.deepEqual(native.calls.slice(1).map((call) => [call[2], call[4]]), [["file:///a.jpg", null], ["file:///b.jpg", null]]);
});

test("the codes of the module are those of the error; without one the runtime failed", async () => {
  const codes: readonly Code[] = ["MANIFEST", "ASSET_MISSING", "HASH_MISMATCH", "BACKEND", "SELF_TEST", "IMAGE", "QUERY", "USAGE"];
  for (const code of codes) {
    native.failure = { code, message: "'a' is damaged" };
    await assert.rejects(load("small"), failure(code, "'a' is damaged"));
  }
  for (const code of [undefined, 5, "EUNSPECIFIED"]) {
    native.failure = { code, message: "it gave up" };
    await assert.rejects(load("small"), failure("BACKEND", "it gave up"));
  }
});

test("the self-test reports a failed case and does not throw", async () => {
  const report = await (await load("small")).selfTest();
  assert.deepEqual([report.pass, report.cases.map(({ pass }) => pass)], [false, [true, false]]);
});

test("a runner is disposed of once, and then refuses to run", async () => {
  const runner = await load("small");
  await runner.dispose();
  await runner.dispose();
  assert.deepEqual(native.calls.slice(1), [["dispose", 7]]);
  await assert.rejects(runner.run({ image: "file:///a.jpg" }), failure("USAGE"));
  await assert.rejects(runner.selfTest(), failure("USAGE"));
});
