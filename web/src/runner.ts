/**
 * Runner: a loaded model. `load` creates one, `dispose` frees its memory.
 *
 *     const runner = await load("./bundle/", { device: "auto", dtype: "auto" });
 *     const { relevance, budgets, indices } = await runner.run({ image, query: "red circle" });
 */
import { Bundle } from "./bundle.js";
import { SelfTestError, UsageError } from "./errors.js";
import { type ActiveBackend, type Fallback, type LoadTimings, activateFirst, runSelfTest, startFirstWorker } from "./fallback_chain.js";
import type { SelfTestReport } from "./golden.js";
import { type Prepared, type RunInput, alike, checkTensors, largestBatch, prepare } from "./run_input.js";
import { type Size, fittingSize } from "./input_size.js";
import { type Dtype, verifiedDtypes } from "./manifest.js";
import { type LoadOptions, type ResolvedOptions, resolveOptions } from "./options.js";
import type { Adapter, Build, Device, ModelOutput } from "./protocol.js";
import { fetchThreshold, isPresent } from "./presence.js";
import { QueryEncoder } from "./query_encoder.js";
import type { RawTensor } from "./tensor.js";
import type { QueryAnswer } from "./types.js";

/** Browsers before 2025 lack the symbol. */
const DISPOSE = ((Symbol as { readonly asyncDispose?: symbol }).asyncDispose ?? Symbol.for("Symbol.asyncDispose")) as typeof Symbol.asyncDispose;

export interface Info {
  readonly name: string;
  readonly device: Device;
  readonly dtype: Dtype;
  /** Whether this precision was verified in a browser when the bundle was exported. */
  readonly verified: boolean;
  readonly build: Build;
  readonly threads: number;
  readonly adapter: Adapter | null;
  readonly version: string;
  /** Whether the model came from the Cache API. */
  readonly fromCache: boolean;
  readonly fallbacks: readonly Fallback[];
  readonly selfTest: SelfTestReport | null;
  readonly timings: LoadTimings & { readonly total: number };
}

export interface Result extends ModelOutput, QueryAnswer {}

export interface RunOptions {
  readonly signal?: AbortSignal;
}

/**
 * Load a bundle.
 *
 * @param source - The bundle, or the URL of its folder or manifest; in Node also the path of its folder.
 * @throws EdgekitError whose `code` names the kind of error; the signal's reason if it was aborted.
 */
export async function load(source: string | URL | Bundle, options: LoadOptions = {}): Promise<Runner> {
  const start = performance.now();
  const resolved = await resolveOptions(source instanceof Bundle ? source.url : source, options);
  const opening = source instanceof Bundle ? Promise.resolve(source) : Bundle.open(source, options.signal);
  opening.catch(() => undefined); // awaited below
  const first = startFirstWorker(resolved);
  try {
    const bundle = await opening;
    const encoder = QueryEncoder.fetch(bundle, options.signal);
    encoder.catch(() => undefined);
    const threshold = fetchThreshold(bundle, options.signal);
    threshold.catch(() => undefined);
    const fallbacks: Fallback[] = [];
    const active = await activateFirst(bundle, resolved, first, fallbacks);
    try {
      const parts = { bundle, options: resolved, active, encoder: await encoder, threshold: await threshold, fallbacks };
      const runner = Runner.of(parts, performance.now() - start);
      resolved.progress.finish();
      return runner;
    } catch (error) {
      active.client.terminate();
      throw error;
    }
  } catch (error) {
    first.client.terminate();
    options.signal?.throwIfAborted();
    throw error;
  }
}

interface Parts {
  readonly bundle: Bundle;
  readonly options: ResolvedOptions;
  readonly active: ActiveBackend;
  readonly encoder: QueryEncoder | undefined;
  readonly threshold: number | null;
  readonly fallbacks: Fallback[];
}

export class Runner {
  /**
   * The self-test of this visit. It runs while loading, or after the first result on WASM where the same model, runtime and
   * browser passed it before. If it fails then, the promise rejects with SelfTestError and the next run falls back.
   */
  readonly checked: Promise<SelfTestReport | null>;
  private settleChecked!: { readonly resolve: (report: SelfTestReport | null) => void; readonly reject: (error: unknown) => void };
  private disposed = false;
  private rebuilding: Promise<void> | undefined;
  private prefetched = false;

  readonly bundle: Bundle;
  /** The words that the model knows; undefined where it takes vectors only. */
  readonly encoder: QueryEncoder | undefined;
  /** The highest relevance from which something in the picture answers the query; null where the model has none. */
  readonly threshold: number | null;
  private options: ResolvedOptions;
  private active: ActiveBackend;
  private readonly fallbacks: Fallback[];

  private constructor(
    { bundle, encoder, threshold, options, active, fallbacks }: Parts,
    private readonly totalMs: number,
  ) {
    this.bundle = bundle;
    this.encoder = encoder;
    this.threshold = threshold;
    this.options = options;
    this.active = active;
    this.fallbacks = fallbacks;
    this.checked = new Promise((resolve, reject) => {
      this.settleChecked = { resolve, reject };
    });
    this.checked.catch(() => undefined); // without a listener, the next run reports it
    this.resolveIfTested();
  }

  /** @internal Use `load`. */
  static of(parts: Parts, totalMs: number): Runner {
    return new Runner(parts, totalMs);
  }

  get info(): Info {
    const { candidate, runtime, report, fromCache, timings } = this.active;
    return {
      name: this.bundle.manifest.name,
      device: runtime.device ?? candidate.device,
      dtype: candidate.dtype,
      verified: verifiedDtypes(this.bundle.manifest).includes(candidate.dtype),
      build: candidate.build,
      threads: runtime.threads,
      adapter: runtime.adapter,
      version: runtime.version,
      fromCache,
      fallbacks: [...this.fallbacks],
      selfTest: report,
      timings: { ...timings, total: this.totalMs },
    };
  }

  /**
   * Run the model on one image, and one query where it takes one: `outputs` holds every output by name, and what a model
   * with scores of patches gives has fields of its own.
   *
   * @throws ImageError, QueryError, ShapeError, BackendError, TimeOutError, DeviceLostError; after the last two the next
   *   run starts the backend again.
   */
  run(input: RunInput, options?: RunOptions): Promise<Result>;
  /**
   * Run it on several; the results are in their order, and are those of single runs.
   *
   * Neighbours of one size run as one batch, up to the largest batch of the model. They run one after the other where the
   * model takes one at a time, where an output does not grow with the batch, and in dynamic INT8, which takes its ranges
   * from the whole batch.
   */
  run(inputs: readonly RunInput[], options?: RunOptions): Promise<Result[]>;
  async run(input: RunInput | readonly RunInput[], options: RunOptions = {}): Promise<Result | Result[]> {
    const inputs: readonly RunInput[] = isList(input) ? input : [input];
    const results: Result[] = [];
    let batch: Prepared[] = [];
    for (const each of inputs) {
      const prepared = await prepare(each, this.bundle.manifest, this.encoder, options.signal);
      const [first] = batch;
      if (first && (batch.length === this.largestBatch() || !alike(first, prepared))) {
        results.push(...(await this.runBatch(batch, options)));
        batch = [];
      }
      batch.push(prepared);
    }
    if (batch.length > 0) results.push(...(await this.runBatch(batch, options)));
    this.prefetchWords();
    const [only] = results;
    return isList(input) || !only ? results : only;
  }

  private largestBatch(): number {
    return largestBatch(this.bundle.manifest, this.bundle.variant(this.active.candidate.dtype));
  }

  private async runBatch(batch: readonly Prepared[], options: RunOptions): Promise<Result[]> {
    const [first] = batch;
    if (!first) return [];
    await this.ensureBackend();
    const largest = this.largestBatch(); // another one where the backend fell back
    if (batch.length > largest) {
      return [...(await this.runBatch(batch.slice(0, largest), options)), ...(await this.runBatch(batch.slice(largest), options))];
    }
    const questions = batch.map(({ image, vector }) => ({ image, query: vector }));
    const outputs = await this.active.client.request(
      { op: "run", questions, height: first.height, width: first.width },
      { limit: batch.length * this.options.timeout, what: "the run", signal: options.signal },
    );
    void this.runDeferredSelfTest();
    return outputs.map((output, index) => ({
      ...output,
      known: batch[index]?.known ?? [],
      present: isPresent(output.relevance, this.threshold),
    }));
  }

  /** The size for `run` that keeps a picture's shape; the default stretches it. */
  fittingSize(picture: Size): Size {
    return fittingSize(this.bundle.manifest, picture);
  }

  /**
   * Run the model on raw tensors by name, without preprocessing; returns every output by name.
   *
   * @throws ShapeError if an input is missing, unknown, or not of the declared type and shape.
   */
  async feed(inputs: Readonly<Record<string, RawTensor>>): Promise<Readonly<Record<string, RawTensor>>> {
    checkTensors(inputs, this.bundle.manifest);
    await this.ensureBackend();
    const outputs = await this.active.client.request({ op: "feed", inputs }, { limit: this.options.timeout, what: "the run" });
    void this.runDeferredSelfTest();
    return outputs;
  }

  /** Run the golden vectors again. Reports; does not throw when a case fails. */
  async selfTest(options: RunOptions = {}): Promise<SelfTestReport> {
    await this.ensureBackend();
    const { candidate, client } = this.active;
    return runSelfTest(this.bundle, candidate, client, { signal: options.signal, timeout: this.options.timeout });
  }

  /** Terminate the worker, which frees all its memory. */
  dispose(): Promise<void> {
    this.disposed = true;
    this.active.client.terminate();
    return Promise.resolve();
  }

  /** `await using runner = await load(...)` disposes of it at the end of the block. */
  async [DISPOSE](): Promise<void> {
    await this.dispose();
  }

  /** Without a deferred self-test, the result is known when loading is done. */
  private resolveIfTested(): void {
    const { deferredSelfTest, report } = this.active;
    if (!deferredSelfTest) this.settleChecked.resolve(report);
  }

  /** Fetch the words' vectors after the first result, once: a text that needs them later tries again and says what fails. */
  private prefetchWords(): void {
    if (!this.prefetched) this.encoder?.ready().catch(() => undefined);
    this.prefetched = true;
  }

  /** Run the self-test that was deferred until after the first result. */
  private async runDeferredSelfTest(): Promise<void> {
    const { deferredSelfTest, client } = this.active;
    if (!deferredSelfTest) return;
    this.active = { ...this.active, deferredSelfTest: undefined };
    try {
      const report = await deferredSelfTest();
      if (this.active.client === client) this.active = { ...this.active, report };
      this.settleChecked.resolve(report);
    } catch (error) {
      if (error instanceof SelfTestError) client.terminate(error);
      this.settleChecked.reject(error);
    }
  }

  /** After a lost GPU device, a time-out or a crash: activate a backend again. */
  private async ensureBackend(): Promise<void> {
    if (this.disposed) throw new UsageError("the runner was disposed: load the bundle again");
    const { failure } = this.active.client;
    if (!failure) return;
    this.rebuilding ??= this.rebuild(failure.code, failure.message).finally(() => (this.rebuilding = undefined));
    await this.rebuilding;
  }

  private async rebuild(code: string, reason: string): Promise<void> {
    const { device, dtype, threads } = this.active.candidate;
    // A backend that fails a second time is avoided from then on.
    const repeated = this.fallbacks.some((f) => f.device === device && f.threads === threads);
    if (repeated) this.options = { ...this.options, avoid: [...this.options.avoid, { device, threads }] };
    this.fallbacks.push({ device, dtype, threads, code, reason });
    this.active = await activateFirst(this.bundle, { ...this.options, selfTest: this.options.selfTest !== false, signal: undefined, device: device === "cpu" ? "auto" : device, dtype }, undefined, this.fallbacks);
    this.resolveIfTested();
    // `dispose` may have been called in the meantime.
    if (this.disposed) this.active.client.terminate();
  }
}

function isList(input: RunInput | readonly RunInput[]): input is readonly RunInput[] {
  return Array.isArray(input);
}
