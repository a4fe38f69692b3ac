/**
 * Bench: how long a run takes here, by the protocol of edgekit's own reports (edgekit/latency.py): warm-ups first, then at
 * least so many runs and so long, and percentiles instead of a mean.
 */
import type { RunInput, Runner } from "./runner";

export interface BenchOptions {
  readonly warmups?: number;
  readonly runs?: number;
  /** Seconds that the timed runs last at least. */
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

const MOST_SECONDS = 20; // on a slow device fewer runs must do

/** Time the inference (without preprocessing). */
export async function bench(runner: Runner, input: RunInput, options: BenchOptions = {}): Promise<BenchReport> {
  const { warmups = 10, runs = 100, seconds = 2, signal, onprogress } = options;
  const run = (): Promise<number> => runner.run(input, signal ? { signal } : {}).then((r) => r.inference);
  const start = performance.now();
  const spent = (): number => (performance.now() - start) / 1000;
  for (let i = 0; i < warmups && spent() < MOST_SECONDS / 4; i++) await run();
  const times: number[] = [];
  const timed = performance.now();
  const enough = (): boolean => times.length >= runs && performance.now() - timed >= 1000 * seconds;
  while (!enough() && (spent() < MOST_SECONDS || times.length < 3)) {
    times.push(await run());
    onprogress?.(Math.min(1, Math.max(times.length / runs, spent() / MOST_SECONDS)));
  }
  times.sort((a, b) => a - b);
  const { device, dtype, threads } = runner.info;
  const at = (q: number): number => percentile(times, q);
  return { runs: times.length, p50: at(0.5), p90: at(0.9), p95: at(0.95), p99: at(0.99), device, dtype, threads };
}

/** The q-quantile of sorted numbers, between neighbours as numpy's default. */
export function percentile(sorted: readonly number[], q: number): number {
  const at = q * (sorted.length - 1);
  const low = sorted[Math.floor(at)] ?? NaN;
  const high = sorted[Math.ceil(at)] ?? NaN;
  return low + (high - low) * (at - Math.floor(at));
}
