/** A native module that answers as a test says, and remembers its calls; `Spec` says which calls there are. */
import type { NativeCase, NativeInfo, NativeResult, Spec } from "../src/NativeEdgekit.js";

export const PASSED: NativeCase = { name: "ramp", pass: true, output: "relevance", metric: "max_abs", error: 1e-5, limit: 1e-3, reason: "" };

export const INFO: NativeInfo = {
  runner: 7,
  name: "small",
  target: "onnx",
  targets: ["onnx", "litert"],
  precision: "fp32",
  device: "ONNX Runtime 1.27.0, CPU, 4 threads",
  reference: "NVIDIA H200",
  verdicts: [{ place: "local", status: "verified" }],
  words: ["red", "circle"],
  threshold: 0.5,
  cases: [PASSED],
};

export const RESULT: NativeResult = {
  relevance: [0.25, 0.75],
  budgets: [148, 316],
  indices: [1],
  rows: 1,
  columns: 2,
  size: [16, 32],
  part: [0, 5, 20, 40],
  place: [0, 0, 16, 32],
  known: ["red"],
  present: true,
  ms: 3.5,
};

export class FakeModule implements Spec {
  readonly calls: (readonly unknown[])[] = [];
  info = INFO;
  failure: { readonly code?: unknown; readonly message?: string } | undefined;

  load(...call: Parameters<Spec["load"]>): Promise<NativeInfo> {
    return this.answer(["load", ...call], this.info);
  }

  run(...call: Parameters<Spec["run"]>): Promise<NativeResult> {
    return this.answer(["run", ...call], RESULT);
  }

  selfTest(...call: Parameters<Spec["selfTest"]>): Promise<readonly NativeCase[]> {
    return this.answer(["selfTest", ...call], [PASSED, { ...PASSED, pass: false, reason: "too far off" }]);
  }

  dispose(...call: Parameters<Spec["dispose"]>): Promise<void> {
    return this.answer(["dispose", ...call], undefined);
  }

  private answer<T>(call: readonly unknown[], value: T): Promise<T> {
    this.calls.push(call);
    return this.failure ? Promise.reject(Object.assign(new Error(this.failure.message), this.failure)) : Promise.resolve(value);
  }
}
