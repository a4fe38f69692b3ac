/**
 * Bench: inference latency on this device, by the protocol of edgekit's reports (edgekit/evaluate/timing.py): warm-up runs,
 * then timed runs until both a number of runs and a duration are reached; percentiles instead of a mean.
 */
import type { RunInput } from "./run_input.js";
import type { Runner } from "./runner.js";

export interface BenchOptions {
  readonly warmups?: number;
  readonly runs?: number;
  /** The shortest duration of the timed runs, in seconds. */
  readonly seconds?: number;
  readonly signal?: AbortSignal;
  readonly onprogress?: (share: number) => void;
}

/** Milliseconds. */
export interface BenchReport {
  readonly runs: number;
  readonly p50: number;
  readonly p90: number;
  readonly p95: number;
  readonly p99: number;
  readonly device: string;
  readonly dtype: string;
  readonly threads: number;
}

const MAX_SECONDS = 20; // a slow device stops earlier, with fewer runs

/** Measure the inference time, without preprocessing. */
export async function bench(runner: Runner, input: RunInput, options: BenchOptions = {}): Promise<BenchReport> {
  const { warmups = 10, runs = 100, seconds = 2, signal, onprogress } = options;
  const run = (): Promise<number> => runner.run(input, signal ? { signal } : {}).then((r) => r.inference);
  const start = performance.now();
  const spent = (): number => (performance.now() - start) / 1000;
  for (let i = 0; i < warmups && spent() < MAX_SECONDS / 4; i++) await run();
  const times: number[] = [];
  const timed = performance.now();
  const enough = (): boolean => times.length >= runs && performance.now() - timed >= 1000 * seconds;
  while (!enough() && (spent() < MAX_SECONDS || times.length < 3)) {
    times.push(await run());
    onprogress?.(Math.min(1, Math.max(times.length / runs, spent() / MAX_SECONDS)));
  }
  times.sort((a, b) => a - b);
  const { device, dtype, threads } = runner.info;
  const at = (q: number): number => percentile(times, q);
  return { runs: times.length, p50: at(0.5), p90: at(0.9), p95: at(0.95), p99: at(0.99), device, dtype, threads };
}

/** The q-quantile of sorted numbers, with linear interpolation as in NumPy's default. */
export function percentile(sorted: readonly number[], q: number): number {
  const at = q * (sorted.length - 1);
  const low = sorted[Math.floor(at)] ?? NaN;
  const high = sorted[Math.ceil(at)] ?? NaN;
  return low + (high - low) * (at - Math.floor(at));
}
