/**
 * FallbackChain: tries the candidates in order until one has started, opened its model and passed the self-test.
 *
 * The runtime starts while the manifest and the model are still being downloaded.
 */
import { defaultDtypes } from "./manifest.js";
import type { Bundle } from "./bundle.js";
import { type Candidate, type CandidateOrder, type LoadStep, firstDevice, orderCandidates, remaining } from "./candidates.js";
import type { Client } from "./client.js";
import type { OnBytes } from "./download.js";
import { threadCount } from "./device.js";
import { rememberDevice } from "./device_choice.js";
import { environment } from "./environment.js";
import { AssetError, BackendError, EdgekitError, SelfTestError, firstLine } from "./errors.js";
import { type GoldenFiles, type SelfTestReport, fetchGolden } from "./golden.js";
import type { ResolvedOptions } from "./options.js";
import type { Progress } from "./progress.js";
import type { Device, Started } from "./protocol.js";
import { SelfTestCache } from "./selftest_cache.js";
import { RUNTIME_FILES } from "./session.js";

const TIMED_ROUNDS = 3;

/** A candidate that failed, and why. One that ran before it failed (a lost GPU) may be in use again. */
export interface Fallback {
  readonly device: Device;
  readonly dtype: string;
  readonly threads: number;
  readonly code: string;
  readonly reason: string;
}

/** Milliseconds of each step; they overlap. */
export interface LoadTimings {
  start: number;
  fetch: number;
  open: number;
  selfTest: number;
}

/** The candidate in use. */
export interface ActiveBackend {
  readonly candidate: Candidate;
  readonly client: Client;
  readonly runtime: Started;
  /** Of this load, or of the earlier visit in which the same test passed; null where no test was requested. */
  readonly report: SelfTestReport | null;
  /** The self-test that this visit has still to run; it throws SelfTestError. */
  readonly deferredSelfTest: (() => Promise<SelfTestReport>) | undefined;
  readonly fromCache: boolean;
  readonly timings: LoadTimings;
}

/** A worker whose runtime is starting. */
export class StartingWorker {
  readonly client = environment().openClient();
  readonly started: Promise<Started>;
  private readonly startedAt = performance.now();
  /** Milliseconds that the start took. */
  startMs = 0;
  /** Called with the bytes of the runtime's WASM that have arrived. */
  ondata: ((loaded: number, sent?: number) => void) | undefined;

  constructor(
    readonly candidate: Pick<Candidate, "device" | "build" | "threads">,
    options: ResolvedOptions,
  ) {
    const { device, build, threads } = candidate;
    const what = `starting the ${device} backend`;
    const request = { op: "start", device, build, threads, runtime: options.runtime } as const;
    const onprogress: OnBytes = (loaded, _, sent) => { this.ondata?.(loaded, sent); };
    this.started = this.client.request(request, { limit: options.timeout, what, signal: options.signal, onprogress });
    this.started.then(
      () => (this.startMs = performance.now() - this.startedAt),
      () => undefined, // awaited later, or not at all
    );
  }

  matches({ device, build, threads }: Candidate): boolean {
    return this.candidate.device === device && this.candidate.build === build && this.candidate.threads === threads;
  }
}

/** Start the runtime that the first candidate will need. */
export function startFirstWorker(options: ResolvedOptions): StartingWorker {
  const device = firstDevice(options.device, options.capabilities);
  const build = device === "wasm" ? "wasm" : "jspi";
  return new StartingWorker({ device, build, threads: device === "wasm" ? threadCount(options.capabilities) : 1 }, options);
}

/**
 * Activate the first candidate that works.
 *
 * @param first - A worker that is starting already.
 * @param fallbacks - Gets the candidates that failed.
 * @throws The last candidate's error, where all failed.
 */
export async function activateFirst(
  bundle: Bundle,
  options: ResolvedOptions,
  first: StartingWorker | undefined,
  fallbacks: Fallback[],
): Promise<ActiveBackend> {
  const { candidates, unavailable } = bundleCandidates(bundle, options);
  fallbacks.push(...unavailable.map((u) => ({ ...u, threads: 1 })));
  const preferred = candidates.filter((c) => !options.avoid.some((a) => a.device === c.device && a.threads === c.threads));
  let candidatesLeft: readonly Candidate[] = preferred.length > 0 ? preferred : candidates;
  let unused = first;
  for (let candidate = candidatesLeft[0]; candidate; candidate = candidatesLeft[0]) {
    if (!unused?.matches(candidate)) unused?.client.terminate();
    const starting: StartingWorker = unused?.matches(candidate) ? unused : new StartingWorker(candidate, options);
    unused = undefined;
    const reached: { step: LoadStep } = { step: "start" };
    try {
      const active = await activate(bundle, options, candidate, starting, reached);
      return await quickest(bundle, options, active, candidatesLeft, fallbacks);
    } catch (error) {
      starting.client.terminate();
      options.signal?.throwIfAborted();
      const failure = error instanceof EdgekitError ? error : new BackendError(firstLine(error));
      candidatesLeft = remaining(candidatesLeft, candidate, reached.step, failure.code);
      if (candidatesLeft.length === 0) throw failure;
      const { device, dtype, threads } = candidate;
      fallbacks.push({ device, dtype, threads, code: failure.code, reason: failure.message });
    }
  }
  throw new BackendError("no backend is available");
}

/**
 * The quicker of a GPU's backend and the first one on WASM, by the last of their runs; the next visit starts with it. GPUs
 * lose where a model's operators fall to the CPU one by one.
 */
async function quickest(
  bundle: Bundle,
  options: ResolvedOptions,
  gpu: ActiveBackend,
  candidates: readonly Candidate[],
  fallbacks: Fallback[],
): Promise<ActiveBackend> {
  const other = candidates.find((c) => c.device === "wasm");
  if (options.device !== "auto" || options.quicker || gpu.candidate.device !== "webgpu" || !other || !gpu.report) return gpu;
  const starting = new StartingWorker(other, options);
  let wasm: ActiveBackend | undefined;
  let times: readonly number[];
  try {
    wasm = await activate(bundle, { ...options, selfTest: true }, other, starting, { step: "start" });
    times = [await runTime(bundle, gpu, options), await runTime(bundle, wasm, options)];
  } catch {
    starting.client.terminate();
    options.signal?.throwIfAborted();
    return gpu; // there is nothing to compare it with
  }
  const [onGpu = 0, onWasm = 0] = times;
  rememberDevice(bundle.url, options.capabilities, onGpu <= onWasm ? "webgpu" : "wasm");
  if (onGpu <= onWasm) {
    wasm.client.terminate();
    return gpu;
  }
  gpu.client.terminate();
  const { device, dtype, threads } = gpu.candidate;
  fallbacks.push({ device, dtype, threads, code: "SLOWER", reason: `it takes ${onGpu.toFixed(0)} ms, and WASM ${onWasm.toFixed(0)} ms` });
  return wasm;
}

/** Milliseconds of the golden cases: the least of a few rounds, since the first compiles shaders. */
async function runTime(bundle: Bundle, { candidate, client }: ActiveBackend, options: ResolvedOptions): Promise<number> {
  const rounds: number[] = [];
  for (let round = 0; round < TIMED_ROUNDS; round++) {
    const { cases } = await runSelfTest(bundle, candidate, client, options);
    rounds.push(cases.reduce((sum, { ms }) => sum + ms, 0) / cases.length);
  }
  return Math.min(...rounds);
}

/** The candidates for this bundle. */
export function bundleCandidates(bundle: Bundle, options: Pick<ResolvedOptions, "device" | "dtype" | "capabilities">): CandidateOrder {
  const asyncify = bundle.file(`ort/${RUNTIME_FILES.asyncify.wasm}`) !== undefined;
  const all = bundle.manifest.bundle.variants.map((v) => v.name);
  const unasked = defaultDtypes(bundle.manifest);
  const available = options.dtype === "auto" ? unasked : all.filter((d) => d === options.dtype || d === "fp32" || unasked.includes(d));
  return orderCandidates(options.device, options.dtype, options.capabilities, available, asyncify);
}

/** Start one candidate, open its model and test it; `reached.step` says how far it came. */
async function activate(
  bundle: Bundle,
  options: ResolvedOptions,
  candidate: Candidate,
  starting: StartingWorker,
  reached: { step: LoadStep },
): Promise<ActiveBackend> {
  const { client } = starting;
  const { progress, signal, timeout: limit } = options;
  const runtimeArrived = expectRuntime(bundle, candidate, progress);
  starting.ondata = runtimeArrived;
  const model = fetchModel(bundle, candidate, client, options);
  const tested = options.selfTest !== false && bundle.manifest.bundle.golden !== "";
  const late = options.selfTest === "after" && candidate.device === "wasm";
  const golden = tested && !late ? fetchGolden(bundle, signal) : undefined;
  golden?.catch(() => undefined); // awaited in the self-test, unless an earlier step fails
  const runtime = await starting.started;
  runtimeArrived();
  reached.step = "fetch";
  const { fetchMs, fromCache } = await model;
  reached.step = "open";
  const openStart = performance.now();
  const { inputs, outputs } = bundle.manifest;
  await client.request({ op: "open", inputs, outputs }, { limit, what: `opening the ${candidate.dtype} model`, signal });
  const openMs = performance.now() - openStart;
  reached.step = "selfTest";
  const testStart = performance.now();
  // A GPU driver may have changed since the last visit; on WASM the result depends on browser, runtime and model alone.
  const cache = candidate.device === "wasm" ? new SelfTestCache(bundle, candidate, runtime) : undefined;
  const test = (until: AbortSignal | undefined): Promise<SelfTestReport> =>
    requirePass(bundle, candidate, client, { signal: until, timeout: limit }, golden ?? fetchGolden(bundle, until), cache);
  const earlierReport = tested ? cache?.read() : undefined;
  const report = earlierReport ?? (tested && !late ? await test(signal) : null);
  const timings = { start: starting.startMs, fetch: fetchMs, open: openMs, selfTest: performance.now() - testStart };
  const deferredSelfTest = earlierReport || (tested && late) ? () => test(undefined) : undefined;
  return { candidate, client, runtime, report, deferredSelfTest, fromCache, timings };
}

/** Have the worker fetch a candidate's model. The promise may be awaited late. */
function fetchModel(
  bundle: Bundle,
  { dtype }: Candidate,
  client: Client,
  { progress, signal }: ResolvedOptions,
): Promise<{ fetchMs: number; fromCache: boolean }> {
  const variant = bundle.variant(dtype);
  if (!variant) throw new AssetError(`the bundle has no ${dtype} model`);
  const model = bundle.request(variant.path);
  progress.addFile(model.file);
  const fetchStart = performance.now();
  let fromCache = false;
  const onprogress: OnBytes = (loaded, cached, sent) => {
    fromCache = cached;
    progress.update(variant.path, loaded, cached, sent);
  };
  const fetched = client
    .request({ op: "fetch", model }, { what: `fetching the ${dtype} model`, signal, onprogress })
    .then(() => ({ fetchMs: performance.now() - fetchStart, fromCache }));
  fetched.catch(() => undefined); // awaited after the start, unless that fails first
  return fetched;
}

/** Count the runtime's WASM in the progress; call the returned function with what has arrived, or at the end. */
export function expectRuntime(bundle: Bundle, { build }: Pick<Candidate, "build">, progress: Progress): (loaded?: number, sent?: number) => void {
  const file = bundle.file(`ort/${RUNTIME_FILES[build].wasm}`);
  if (!file) return () => undefined; // the runtime lies elsewhere: how large it is there is not known
  progress.addFile(file);
  return (loaded = file.size, sent?: number) => {
    if (loaded > 0) progress.update(file.path, loaded, false, sent);
  };
}

/** @throws SelfTestError naming the first case that failed. */
async function requirePass(
  bundle: Bundle,
  candidate: Candidate,
  client: Client,
  options: Pick<ResolvedOptions, "signal" | "timeout">,
  files: Promise<GoldenFiles>,
  cache: SelfTestCache | undefined,
): Promise<SelfTestReport> {
  const report = await runSelfTest(bundle, candidate, client, options, files);
  const failed = report.cases.find((c) => !c.pass);
  if (failed) {
    cache?.clear();
    throw new SelfTestError(
      `the self-test of ${candidate.dtype} on ${candidate.device} failed in case "${failed.name}": ${failed.reason}`,
    );
  }
  cache?.write(report);
  return report;
}

/** Run the golden vectors on a backend. Reports; does not throw when a case fails. */
export async function runSelfTest(
  bundle: Bundle,
  { device, dtype }: Candidate,
  client: Client,
  options: Pick<ResolvedOptions, "signal" | "timeout">,
  files: Promise<GoldenFiles> = fetchGolden(bundle, options.signal),
): Promise<SelfTestReport> {
  const [json, binary] = await files;
  const delegated = device === "webgpu" || device === "webnn"; // drivers change the order of summation
  const report = await client.request(
    { op: "selfTest", json, binary, allowed: delegated ? [dtype, "delegated"] : [dtype], url: bundle.urlOf(bundle.manifest.bundle.golden) },
    { limit: options.timeout, what: `the self-test of ${dtype} on ${device}`, signal: options.signal },
  );
  return { ...report, device, dtype };
}
