/**
 * Precisions: every precision of the bundle on every device of this browser, asked the same picture: how far their
 * answers are from those of fp32, and how long they take. One is loaded at a time.
 */
import { type BenchReport, type Bundle, type DeviceOption, type Dtype, type Result, type RunInput, bench, capabilities, load } from "../src/index";
import { bundleCandidates } from "../src/fallback_chain";
import { backendLabel } from "./device_panel";
import { numbers } from "./tensor_words";

const DTYPES: readonly Dtype[] = ["fp32", "fp16", "q8"];
const SOFTWARE = "the GPU is emulated by software, which is far slower than WASM: choose WebGPU to measure it";
const BENCH = { warmups: 3, runs: 20, seconds: 0.5 };

/** One precision on one device. */
export interface Measured {
  readonly device: "wasm" | "webgpu" | "webnn";
  readonly dtype: Dtype;
  /** Bytes of the model. */
  readonly size: number;
  /** Undefined where it did not run. */
  readonly answer?: Answer;
  readonly speed?: BenchReport;
  /** Why it did not run. */
  readonly reason?: string;
}

/** What is compared of a result: the scores of patches, or the first output of numbers. */
export interface Answer {
  readonly name: string;
  readonly values: readonly number[];
  /** The selected patches; empty for a model without. */
  readonly selected: readonly number[];
}

/**
 * Ask and time one after the other.
 *
 * @param chosen - The device that the user chose: a GPU in software is measured only where it was chosen.
 * @param tell - Called with what runs, in words.
 */
export async function measurePrecisions(bundle: Bundle, input: RunInput, chosen: DeviceOption, tell: (text: string) => void): Promise<readonly Measured[]> {
  const has = await capabilities(true, true);
  const measured: Measured[] = [];
  for (const device of ["wasm", "webgpu", "webnn"] as const) {
    for (const dtype of DTYPES) {
      const variant = bundle.variant(dtype);
      if (!variant) continue;
      const one = { device, dtype, size: bundle.file(variant.path)?.size ?? 0 };
      const emulated = device === "webgpu" && chosen !== "webgpu" && has.gpu?.software ? SOFTWARE : undefined;
      const reason = bundleCandidates(bundle, { device, dtype, capabilities: has }).unavailable[0]?.reason ?? emulated;
      if (reason === undefined) tell(`Measuring ${backendLabel(one)}`);
      measured.push({ ...one, ...(reason === undefined ? await measure(bundle, device, dtype, input) : { reason }) });
    }
  }
  return measured;
}

/** Load, test, ask and time one; a runner that falls back says why instead. */
async function measure(bundle: Bundle, device: Measured["device"], dtype: Dtype, input: RunInput): Promise<Pick<Measured, "answer" | "speed" | "reason">> {
  try {
    const runner = await load(bundle, { device, dtype });
    try {
      const answer = answerOf(await runner.run(input));
      const speed = await bench(runner, input, BENCH);
      const { info } = runner;
      if (info.device === device && info.dtype === dtype) return { answer, speed };
      return { reason: info.fallbacks.at(-1)?.reason ?? `${backendLabel(info)} took its place` };
    } finally {
      await runner.dispose();
    }
  } catch (error) {
    return { reason: error instanceof Error ? error.message : String(error) };
  }
}

export function answerOf({ relevance, indices, outputs }: Pick<Result, "relevance" | "indices" | "outputs">): Answer {
  if (relevance.length > 0) return { name: "relevance", values: [...relevance], selected: [...indices] };
  const first = Object.entries(outputs).find(([, { dtype }]) => dtype.startsWith("float")) ?? Object.entries(outputs)[0];
  return { name: first?.[0] ?? "", values: first ? numbers(first[1].data) : [], selected: [] };
}

/** How far two answers are apart: the largest difference, and how many selected patches are the same. */
export function apart(one: Answer, other: Answer): { readonly largest: number; readonly shared: number } {
  const largest = one.values.reduce((most, value, i) => Math.max(most, Math.abs(value - (other.values[i] ?? NaN))), 0);
  const chosen = new Set(one.selected);
  return { largest, shared: other.selected.filter((patch) => chosen.has(patch)).length };
}
