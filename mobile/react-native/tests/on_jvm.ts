/**
 * Runs the whole module where no phone is: these calls, the Kotlin module in a JVM, and ONNX Runtime behind its Java classes.
 *
 *     node --import ./tests/turbo_module.mjs on_jvm.js BUNDLE TARGET CASES JAVA ARGUMENTS...
 *
 * CASES is a file of JSON: pictures with their queries, and further bundles. Printed is JSON: the runner's facts, the results,
 * and the errors of those bundles and of wrong calls.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import process from "node:process";
import { createInterface } from "node:readline";
import type { EdgekitError, Runner } from "../src/index.js";
import type { Spec } from "../src/NativeEdgekit.js";

interface Case {
  readonly height: number;
  readonly width: number;
  readonly pixels: readonly number[];
  readonly words?: string;
  readonly vector?: readonly number[];
}

interface Cases {
  readonly cases: readonly Case[];
  readonly refused: readonly string[];
}

interface Answer {
  readonly number: number;
  readonly value?: never;
  readonly code?: string;
  readonly message?: string;
}

const [bundle = "", target = "", file = "", java = "", ...rest] = process.argv.slice(2);
const host = spawn(java, rest, { stdio: ["pipe", "pipe", "inherit"] });
const waiting: { readonly resolve: (value: never) => void; readonly reject: (error: Error) => void }[] = [];
createInterface(host.stdout).on("line", (line) => {
  const { number, value, code, message } = JSON.parse(line) as Answer;
  if (code === undefined) waiting[number]?.resolve(value as never);
  else waiting[number]?.reject(Object.assign(new Error(message), { code }));
});

function call(name: string, given: readonly unknown[]): Promise<never> {
  return new Promise((resolve, reject) => {
    const number = waiting.push({ resolve, reject }) - 1;
    host.stdin.write(`${JSON.stringify([number, name, given])}\n`);
  });
}

const module: Spec = {
  load: (...given) => call("load", given),
  run: (...given) => call("run", given),
  selfTest: (...given) => call("selfTest", given),
  dispose: (...given) => call("dispose", given),
};
(globalThis as unknown as { turboModules: Record<string, Spec> }).turboModules.Edgekit = module;
const { load } = await import("../src/index.js");

const told = (error: unknown): string => `${(error as EdgekitError).code}: ${(error as EdgekitError).message}`;
const failure = (wrong: Promise<unknown>): Promise<string> => wrong.then(() => "accepted", told);

const runner: Runner = await load(bundle, { target });
const { cases, refused } = JSON.parse(readFileSync(file, "utf8")) as Cases;
const results: unknown[] = [];
for (const { pixels, height, width, words, vector } of cases) {
  const query = words ?? Float32Array.from(vector ?? []);
  const { relevance, budgets, indices, ...others } = await runner.run({ image: { data: Uint8Array.from(pixels), height, width }, query, size: { height, width } });
  results.push({ ...others, relevance: [...relevance], budgets: [...budgets], indices: [...indices] });
}
const image = { data: new Uint8Array(3 * 96 * 96), height: 96, width: 96 };
const ofBundles: string[] = [];
for (const other of refused) ofBundles.push(await failure(load(other, { target })));
const errors = [
  await failure(load(bundle, { target: "litert" })),
  await failure(runner.run({ image: { ...image, data: image.data.subarray(3) }, query: "red" })),
  await failure(runner.run({ image, query: "purple" })),
  await failure(runner.run({ image, query: "red", size: { height: 97, width: 96 } })),
];
const { cases: tested } = await runner.selfTest();
const { info, threshold } = runner;
await runner.dispose();
errors.push(await failure(module.run(1, "", [], null, [], 0, [])));
host.stdin.end();
await once(host, "exit");
console.log(JSON.stringify({ info, threshold, results, refused: ofBundles, errors, tested }));
