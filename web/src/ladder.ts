/**
 * Ladder: climbs down the plan until an attempt has started, opened its model and passed the self-test.
 *
 * The runtime starts while the manifest and the model are still on their way.
 */
import { Attempt } from "./attempt";
import type { Bundle } from "./bundle";
import { type Capabilities, threadCount } from "./device";
import { AssetError, BackendError, EdgekitError, SelfTestError, sentence } from "./errors";
import { type SelfTestReport, goldenPaths } from "./golden";
import { Passed } from "./passed";
import { type DeviceOption, type DtypeOption, type Plan, type Rung, type Stage, firstDevice, plan, remaining } from "./plan";
import type { Progress } from "./progress";
import { RUNTIME_FILES } from "./session";
import type { Device, Started } from "./wire";

/** What was tried and failed, and why. What failed once, long after it stood, may be in use again. */
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

/** An attempt that stands. */
export interface Standing {
  readonly rung: Rung;
  readonly attempt: Attempt;
  readonly started: Started;
  /** Of this load, or of the earlier visit in which the same passed; null where no test was wanted. */
  readonly report: SelfTestReport | null;
  /** The self-test that is still to be made in this visit; it throws SelfTestError. */
  readonly check: (() => Promise<SelfTestReport>) | undefined;
  readonly fromCache: boolean;
  readonly timings: LoadTimings;
}

export interface Climb {
  readonly device: DeviceOption;
  readonly dtype: DtypeOption;
  readonly has: Capabilities;
  /** URL of the folder with the runtime's files. */
  readonly runtime: string;
  readonly selfTest: boolean;
  readonly timeout: number;
  readonly signal: AbortSignal | undefined;
  readonly progress: Progress;
  /** What failed before, and is tried only where nothing else is left. */
  readonly avoid: readonly Pick<Rung, "device" | "threads">[];
}

/** The largest difference of a score that is right on WebGPU in fp32: drivers reorder sums. */
const WEBGPU_MAX_ABS = 1e-3;

/** A worker whose runtime is starting. */
export class Early {
  readonly attempt = new Attempt();
  readonly started: Promise<Started>;
  readonly begun = performance.now();
  took = 0;

  constructor(
    readonly rung: Pick<Rung, "device" | "build" | "threads">,
    how: Climb,
  ) {
    const { device, build, threads } = rung;
    const what = `starting the ${device} backend`;
    this.started = this.attempt.ask({ op: "start", device, build, threads, runtime: how.runtime }, { limit: how.timeout, what, signal: how.signal });
    this.started.then(
      () => (this.took = performance.now() - this.begun),
      () => undefined, // it is awaited later, or not at all
    );
  }

  fits(rung: Rung): boolean {
    return this.rung.device === rung.device && this.rung.build === rung.build && this.rung.threads === rung.threads;
  }
}

/** Start the runtime that the first rung will need. */
export function early(how: Climb): Early {
  const device = firstDevice(how.device, how.has);
  const build = device === "webgpu" ? "jspi" : "wasm";
  return new Early({ device, build, threads: device === "webgpu" ? 1 : threadCount(how.has) }, how);
}

/**
 * Find the first rung that stands.
 *
 * @throws The last rung's error, where all failed.
 */
export async function climb(bundle: Bundle, how: Climb, first: Early | undefined, fallbacks: Fallback[]): Promise<Standing> {
  const { rungs, skipped } = planned(bundle, how);
  fallbacks.push(...skipped.map((s) => ({ ...s, threads: 1 })));
  const trusted = rungs.filter((r) => !how.avoid.some((a) => a.device === r.device && a.threads === r.threads));
  let left: readonly Rung[] = trusted.length > 0 ? trusted : rungs;
  let spare = first;
  for (let rung = left[0]; rung; rung = left[0]) {
    if (!spare?.fits(rung)) spare?.attempt.terminate();
    const begun: Early = spare?.fits(rung) ? spare : new Early(rung, how);
    spare = undefined;
    const stage: { at: Stage } = { at: "start" };
    try {
      return await stand(bundle, how, rung, begun, stage);
    } catch (error) {
      begun.attempt.terminate();
      how.signal?.throwIfAborted();
      const known = error instanceof EdgekitError ? error : new BackendError(sentence(error));
      left = remaining(left, rung, stage.at, known.code);
      if (left.length === 0) throw known;
      fallbacks.push({ device: rung.device, dtype: rung.dtype, threads: rung.threads, code: known.code, reason: known.message });
    }
  }
  throw new BackendError("there is no backend to try");
}

/** The rungs that this bundle allows. */
export function planned(bundle: Bundle, how: Pick<Climb, "device" | "dtype" | "has">): Plan {
  const asyncify = bundle.file(`ort/${RUNTIME_FILES.asyncify.wasm}`) !== undefined;
  return plan(how.device, how.dtype, how.has, bundle.manifest.variants.map((v) => v.name), asyncify);
}

async function stand(bundle: Bundle, how: Climb, rung: Rung, begun: Early, stage: { at: Stage }): Promise<Standing> {
  const variant = bundle.variant(rung.dtype);
  if (!variant) throw new AssetError(`the bundle has no ${rung.dtype} model`);
  const { attempt } = begun;
  const { progress, signal, timeout: limit } = how;
  const arrived = expectRuntime(bundle, rung, progress);
  const wanted = bundle.wanted(variant.path);
  progress.expect(variant.path, wanted.file.size);
  let fromCache = false;
  const before = performance.now();
  let fetched = 0;
  const onprogress = (loaded: number, cached: boolean): void => {
    fromCache = cached;
    progress.at(variant.path, loaded, cached);
  };
  const download = attempt
    .ask({ op: "fetch", wanted }, { what: `fetching the ${rung.dtype} model`, signal, onprogress })
    .finally(() => (fetched = performance.now() - before));
  download.catch(() => undefined); // awaited below, unless the start fails first
  const golden = how.selfTest && bundle.manifest.golden ? fetchGolden(bundle, signal) : undefined;
  golden?.catch(() => undefined); // likewise
  const started = await begun.started;
  arrived();
  stage.at = "fetch";
  await download;
  stage.at = "open";
  const opening = performance.now();
  const { inputs, outputs } = bundle.manifest;
  await attempt.ask(
    { op: "open", inputs, outputs },
    { limit, what: `opening the ${rung.dtype} model`, signal },
  );
  const open = performance.now() - opening;
  stage.at = "selfTest";
  const testing = performance.now();
  // A GPU's driver may have changed since; WASM computes what the browser, the runtime and the model make of it.
  const passed = rung.device === "wasm" ? new Passed(bundle, rung, started) : undefined;
  const test =
    golden && ((until: AbortSignal | undefined) => examine(bundle, rung, attempt, { signal: until, timeout: limit }, golden, passed));
  const earlier = test && passed?.recall();
  const report = earlier ?? (await test?.(signal)) ?? null;
  const timings = { start: begun.took, fetch: fetched, open, selfTest: performance.now() - testing };
  return { rung, attempt, started, report, check: earlier && (() => test(undefined)), fromCache, timings };
}

/** Count the runtime's WASM in the progress; the answer is called when it has come. */
export function expectRuntime(bundle: Bundle, { build }: Pick<Rung, "build">, progress: Progress): () => void {
  const path = `ort/${RUNTIME_FILES[build].wasm}`;
  const size = bundle.file(path)?.size ?? 0;
  progress.expect(path, size);
  return () => {
    progress.at(path, size, false);
  };
}

async function examine(
  bundle: Bundle,
  rung: Rung,
  attempt: Attempt,
  how: Pick<Climb, "signal" | "timeout">,
  files: Promise<GoldenFiles>,
  passed: Passed | undefined,
): Promise<SelfTestReport> {
  const report = await selfTest(bundle, rung, attempt, how, files);
  const bad = report.cases.find((c) => !c.pass);
  if (bad) {
    passed?.forget();
    throw new SelfTestError(
      `the self-test of ${rung.dtype} on ${rung.device} failed on "${bad.name}": ${bad.reason}; this device does not compute what the reference does`,
    );
  }
  passed?.remember(report);
  return report;
}

/** The golden vectors as they lie in the bundle: golden.json and golden.bin. */
export type GoldenFiles = readonly [Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>];

/** Fetch the golden vectors; early, so that they are there when the model is open. */
export function fetchGolden(bundle: Bundle, signal: AbortSignal | undefined): Promise<GoldenFiles> {
  const [list, arrays] = goldenPaths(bundle.manifest);
  return Promise.all([bundle.fetch(list, { signal }), bundle.fetch(arrays, { signal })]);
}

/** Run the golden vectors on an attempt. */
export async function selfTest(
  bundle: Bundle,
  rung: Rung,
  attempt: Attempt,
  how: Pick<Climb, "signal" | "timeout">,
  files: Promise<GoldenFiles> = fetchGolden(bundle, how.signal),
): Promise<SelfTestReport> {
  const [json, binary] = await files;
  const allowed = bundle.variant(rung.dtype)?.max_abs ?? 0;
  const limit = rung.device === "webgpu" ? Math.max(allowed, WEBGPU_MAX_ABS) : allowed;
  const report = await attempt.ask(
    { op: "selfTest", json, binary, limit, url: bundle.at(bundle.manifest.golden) },
    { limit: how.timeout, what: `the self-test of ${rung.dtype} on ${rung.device}`, signal: how.signal },
  );
  return { ...report, device: rung.device, dtype: rung.dtype };
}
