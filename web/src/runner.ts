/**
 * Runner: a loaded model. `load` creates one, `dispose` frees its memory.
 *
 *     const runner = await load("./bundle/", { device: "auto", dtype: "auto" });
 *     const { relevance, budgets, indices } = await runner.run({ image, query: "red circle" });
 */
import { Bundle } from "./bundle";
import { SelfTestError, ShapeError, UsageError } from "./errors";
import { type ActiveBackend, type Fallback, type LoadTimings, activateFirst, runSelfTest, startFirstWorker } from "./fallback_chain";
import type { SelfTestReport } from "./golden";
import { type Dtype, type Tensor, sizeOf } from "./manifest";
import { type LoadOptions, type ResolvedOptions, resolveOptions } from "./options";
import { type ImageSource, isTensor, toTransferable } from "./preprocessing";
import type { Adapter, Build, Device, ModelOutput, RawTensor } from "./protocol";
import { fetchThreshold, isPresent } from "./presence";
import { type EncodedQuery, QueryEncoder } from "./query_encoder";

export interface Info {
  readonly name: string;
  readonly device: Device;
  readonly dtype: Dtype;
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

export interface RunInput {
  readonly image: ImageSource;
  /** Words, or the query's vector. */
  readonly query?: string | readonly string[] | Float32Array;
  /** Size of the model's input; default: that of the manifest. */
  readonly size?: { readonly height: number; readonly width: number };
}

export interface Result extends ModelOutput {
  readonly known: readonly string[];
  /** Whether anything in the picture answers the query; null where the model has no threshold for it. */
  readonly present: boolean | null;
}

export interface RunOptions {
  readonly signal?: AbortSignal;
}

/**
 * Load a bundle.
 *
 * @param url - The bundle's folder or manifest.
 * @throws EdgekitError whose `code` names the kind of error; the signal's reason if it was aborted.
 */
export async function load(url: string | URL, options: LoadOptions = {}): Promise<Runner> {
  const start = performance.now();
  const resolved = await resolveOptions(url, options);
  const opening = Bundle.open(url, options.signal);
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
      const runner = new Runner(bundle, resolved, active, await encoder, await threshold, fallbacks, performance.now() - start);
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

export class Runner {
  /**
   * The self-test of this visit. It runs while loading, or after the first result on WASM where the same model, runtime and
   * browser passed it before. If it fails then, the promise rejects with SelfTestError and the next run falls back.
   */
  readonly checked: Promise<SelfTestReport | null>;
  private settleChecked!: { readonly resolve: (report: SelfTestReport | null) => void; readonly reject: (error: unknown) => void };
  private disposed = false;
  private rebuilding: Promise<void> | undefined;

  /** Use `load`. */
  constructor(
    readonly bundle: Bundle,
    private options: ResolvedOptions,
    private active: ActiveBackend,
    /** The words that the model knows; undefined where it takes vectors only. */
    readonly encoder: QueryEncoder | undefined,
    /** The highest relevance from which something in the picture answers the query; null where the model has none. */
    readonly threshold: number | null,
    private readonly fallbacks: Fallback[],
    private readonly totalMs: number,
  ) {
    this.checked = new Promise((resolve, reject) => {
      this.settleChecked = { resolve, reject };
    });
    this.checked.catch(() => undefined); // without a listener, the next run reports it
    this.resolveIfTested();
  }

  get info(): Info {
    const { candidate, runtime, report, fromCache, timings } = this.active;
    return {
      name: this.bundle.manifest.name,
      device: candidate.device,
      dtype: candidate.dtype,
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
  async run(input: RunInput, options: RunOptions = {}): Promise<Result> {
    if (typeof (input as unknown) !== "object" || (input as unknown) === null) {
      throw new UsageError("run() needs an object: { image, query }");
    }
    const { vector, known } = this.encodeQuery(input.query);
    const { height, width } = this.inputSize(input);
    const image = await toTransferable(input.image);
    await this.ensureBackend();
    const output = await this.active.client.request(
      { op: "run", image, query: vector, height, width },
      { limit: this.options.timeout, what: "the run", signal: options.signal },
    );
    void this.runDeferredSelfTest();
    return { ...output, known, present: isPresent(output.relevance, this.threshold) };
  }

  /** Run the model on raw tensors by name, without preprocessing. */
  async feed(inputs: Readonly<Record<string, RawTensor>>): Promise<Readonly<Record<string, RawTensor>>> {
    await this.ensureBackend();
    return this.active.client.request({ op: "feed", inputs }, { limit: this.options.timeout, what: "the run" });
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

  private encodeQuery(query: RunInput["query"]): Omit<EncodedQuery, "vector"> & { vector: EncodedQuery["vector"] | null } {
    if (query === undefined) return { vector: null, known: [] };
    if (!(query instanceof Float32Array)) {
      const words = typeof query === "string" || (Array.isArray(query) && query.every((word) => typeof word === "string"));
      if (!words) throw new UsageError(`the query must be a string, a list of strings or a Float32Array, not ${JSON.stringify(query)}`);
      if (!this.encoder) throw new UsageError("this bundle has no vocabulary: pass the query as a Float32Array");
      return this.encoder.encode(query);
    }
    const expected = sizeOf(this.bundle.manifest, this.input("query")?.shape[1]);
    if (query.length !== expected) {
      throw new ShapeError(`the query has ${String(query.length)} values, but the model expects ${String(expected)}`);
    }
    return { vector: new Float32Array(query), known: [] };
  }

  private inputSize({ image, size }: RunInput): { height: number; width: number } {
    const [, , rows, columns] = this.input("image")?.shape ?? [];
    const given = isTensor(image) ? image : size;
    const resolved = {
      height: given?.height ?? sizeOf(this.bundle.manifest, rows) ?? 0,
      width: given?.width ?? sizeOf(this.bundle.manifest, columns) ?? 0,
    };
    this.checkSide("height", rows, resolved.height);
    this.checkSide("width", columns, resolved.width);
    return resolved;
  }

  private checkSide(side: string, dimension: number | string | undefined, value: number): void {
    const axis = typeof dimension === "string" ? this.bundle.manifest.axes[dimension] : undefined;
    if (axis?.dynamic) {
      if (Number.isInteger(value) && value >= axis.minimum && value <= axis.maximum && value % axis.multiple_of === 0) return;
      throw new ShapeError(
        `the ${side} ${String(value)} is not supported: the model accepts multiples of ${String(axis.multiple_of)} from ${String(axis.minimum)} to ${String(axis.maximum)}`,
      );
    }
    const fixed = sizeOf(this.bundle.manifest, dimension);
    if (value !== fixed) throw new ShapeError(`the ${side} ${String(value)} is not supported: the model accepts only ${String(fixed)}`);
  }

  private input(kind: string): Tensor | undefined {
    return this.bundle.manifest.inputs.find((i) => i.kind === kind);
  }

  /** Without a deferred self-test, the result is known when loading is done. */
  private resolveIfTested(): void {
    const { deferredSelfTest, report } = this.active;
    if (!deferredSelfTest) this.settleChecked.resolve(report);
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
    this.active = await activateFirst(this.bundle, { ...this.options, signal: undefined, device, dtype }, undefined, this.fallbacks);
    this.resolveIfTested();
    // `dispose` may have been called in the meantime.
    if (this.disposed) this.active.client.terminate();
  }
}
