/**
 * Runner: a model that answers. `load` makes one, `dispose` ends it.
 *
 *     const runner = await load("./bundle/", { device: "auto", dtype: "auto" });
 *     const { relevance, budgets, indices } = await runner.run({ image, query: "red circle" });
 */
import { Bundle } from "./bundle";
import { SelfTestError, ShapeError, UsageError } from "./errors";
import type { SelfTestReport } from "./golden";
import { type Climb, type Fallback, type LoadTimings, type Standing, climb, early, selfTest } from "./ladder";
import { type Dtype, type Tensor, sizeOf } from "./manifest";
import { type LoadOptions, prepare } from "./options";
import { type ImageSource, isTensor, sendable } from "./picture";
import { type Encoded, QueryEncoder } from "./query";
import type { Adapter, Answer, Build, Device, RawTensor } from "./wire";

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
  /** Words, or a ready vector. */
  readonly query?: string | readonly string[] | Float32Array;
  /** Size of the model's input; default the manifest's. */
  readonly size?: { readonly height: number; readonly width: number };
}

export interface Result extends Answer {
  readonly known: readonly string[];
  readonly unknown: readonly string[];
}

export interface RunOptions {
  readonly signal?: AbortSignal;
}

/**
 * Load a bundle.
 *
 * @param url - The bundle's folder or manifest.
 * @throws EdgekitError whose `code` says what is wrong; the signal's reason if it was aborted.
 */
export async function load(url: string | URL, options: LoadOptions = {}): Promise<Runner> {
  const before = performance.now();
  const how = await prepare(url, options);
  const opening = Bundle.open(url, options.signal);
  opening.catch(() => undefined); // awaited below
  const first = early(how);
  try {
    const bundle = await opening;
    const encoder = QueryEncoder.fetch(bundle, options.signal);
    encoder.catch(() => undefined);
    const fallbacks: Fallback[] = [];
    const standing = await climb(bundle, how, first, fallbacks);
    try {
      const runner = new Runner(bundle, how, standing, await encoder, fallbacks, performance.now() - before);
      how.progress.ready();
      return runner;
    } catch (error) {
      standing.attempt.terminate();
      throw error;
    }
  } catch (error) {
    first.attempt.terminate();
    options.signal?.throwIfAborted();
    throw error;
  }
}

export class Runner {
  /**
   * The self-test of this visit. It is made while loading; but on WASM, where the very same model, runtime and browser have
   * passed it before, after the first answer. Rejects with SelfTestError if it fails then; the next run climbs anew.
   */
  readonly checked: Promise<SelfTestReport | null>;
  private settle!: { readonly resolve: (report: SelfTestReport | null) => void; readonly reject: (error: unknown) => void };
  private disposed = false;
  private rebuilding: Promise<void> | undefined;

  /** Made by `load`. */
  constructor(
    readonly bundle: Bundle,
    private how: Climb,
    private standing: Standing,
    /** The words that the model knows; undefined where it takes vectors only. */
    readonly encoder: QueryEncoder | undefined,
    private readonly fallbacks: Fallback[],
    private readonly total: number,
  ) {
    this.checked = new Promise((resolve, reject) => {
      this.settle = { resolve, reject };
    });
    this.checked.catch(() => undefined); // who does not ask gets it at the next run
    this.settleTested();
  }

  get info(): Info {
    const { rung, started, report, fromCache, timings } = this.standing;
    return {
      name: this.bundle.manifest.name,
      device: rung.device,
      dtype: rung.dtype,
      build: rung.build,
      threads: started.threads,
      adapter: started.adapter,
      version: started.version,
      fromCache,
      fallbacks: [...this.fallbacks],
      selfTest: report,
      timings: { ...timings, total: this.total },
    };
  }

  /**
   * Score the patches of one image for one query.
   *
   * @throws ImageError, QueryError, ShapeError, BackendError, TimeOutError, DeviceLostError; after the last two the next
   *   run starts the backend anew.
   */
  async run(input: RunInput, options: RunOptions = {}): Promise<Result> {
    if (typeof (input as unknown) !== "object" || (input as unknown) === null) {
      throw new UsageError("run takes an object: { image, query }");
    }
    const { vector, known, unknown } = this.encode(input.query);
    const { height, width } = this.size(input);
    const image = await sendable(input.image);
    await this.ensure();
    const answer = await this.standing.attempt.ask(
      { op: "run", image, query: vector, height, width },
      { limit: this.how.timeout, what: "the run", signal: options.signal },
    );
    void this.check();
    return { ...answer, known, unknown };
  }

  /** Raw tensors by name in, raw tensors by name out: no preprocessing. */
  async feed(inputs: Readonly<Record<string, RawTensor>>): Promise<Readonly<Record<string, RawTensor>>> {
    await this.ensure();
    return this.standing.attempt.ask({ op: "feed", inputs }, { limit: this.how.timeout, what: "the run" });
  }

  /** Check this device against the golden vectors again. Reports; does not throw when a case fails. */
  async selfTest(options: RunOptions = {}): Promise<SelfTestReport> {
    await this.ensure();
    const { rung, attempt } = this.standing;
    return selfTest(this.bundle, rung, attempt, { signal: options.signal, timeout: this.how.timeout });
  }

  /** End the worker; all memory is given back at once. */
  dispose(): Promise<void> {
    this.disposed = true;
    this.standing.attempt.terminate();
    return Promise.resolve();
  }

  private encode(query: RunInput["query"]): Omit<Encoded, "vector"> & { vector: Encoded["vector"] | null } {
    if (query === undefined) return { vector: null, known: [], unknown: [] };
    if (!(query instanceof Float32Array)) {
      const words = typeof query === "string" || (Array.isArray(query) && query.every((word) => typeof word === "string"));
      if (!words) throw new UsageError(`a query is words or a Float32Array, not ${JSON.stringify(query)}`);
      if (!this.encoder) throw new UsageError("this bundle has no vocabulary: give the query as a Float32Array");
      return this.encoder.encode(query);
    }
    const wanted = sizeOf(this.bundle.manifest, this.input("query")?.shape[1]);
    if (query.length !== wanted) {
      throw new ShapeError(`the query has ${String(query.length)} values, and the model takes ${String(wanted)}`);
    }
    return { vector: new Float32Array(query), known: [], unknown: [] };
  }

  private size({ image, size }: RunInput): { height: number; width: number } {
    const [, , rows, columns] = this.input("image")?.shape ?? [];
    const given = isTensor(image) ? image : size;
    const chosen = {
      height: given?.height ?? sizeOf(this.bundle.manifest, rows) ?? 0,
      width: given?.width ?? sizeOf(this.bundle.manifest, columns) ?? 0,
    };
    this.checkSide("height", rows, chosen.height);
    this.checkSide("width", columns, chosen.width);
    return chosen;
  }

  private checkSide(side: string, dimension: number | string | undefined, value: number): void {
    const axis = typeof dimension === "string" ? this.bundle.manifest.axes[dimension] : undefined;
    if (axis?.dynamic) {
      if (Number.isInteger(value) && value >= axis.minimum && value <= axis.maximum && value % axis.multiple_of === 0) return;
      throw new ShapeError(
        `a ${side} of ${String(value)} is not possible: the model takes multiples of ${String(axis.multiple_of)} from ${String(axis.minimum)} to ${String(axis.maximum)}`,
      );
    }
    const fixed = sizeOf(this.bundle.manifest, dimension);
    if (value !== fixed) throw new ShapeError(`a ${side} of ${String(value)} is not possible: the model takes ${String(fixed)}`);
  }

  private input(kind: string): Tensor | undefined {
    return this.bundle.manifest.inputs.find((i) => i.kind === kind);
  }

  /** What was tested while loading has nothing put off. */
  private settleTested(): void {
    const { check, report } = this.standing;
    if (!check) this.settle.resolve(report);
  }

  /** The self-test that was put off. */
  private async check(): Promise<void> {
    const { check, attempt } = this.standing;
    if (!check) return;
    this.standing = { ...this.standing, check: undefined };
    try {
      const report = await check();
      if (this.standing.attempt === attempt) this.standing = { ...this.standing, report };
      this.settle.resolve(report);
    } catch (error) {
      if (error instanceof SelfTestError) attempt.terminate(error);
      this.settle.reject(error);
    }
  }

  /** After a lost GPU, a hang or a crash: climb again. */
  private async ensure(): Promise<void> {
    if (this.disposed) throw new UsageError("the runner was disposed: load it again");
    const { failure } = this.standing.attempt;
    if (!failure) return;
    this.rebuilding ??= this.rebuild(failure.code, failure.message).finally(() => (this.rebuilding = undefined));
    await this.rebuilding;
  }

  private async rebuild(code: string, reason: string): Promise<void> {
    const { device, dtype, threads } = this.standing.rung;
    // Once is bad luck; what fails twice is left alone.
    const twice = this.fallbacks.some((f) => f.device === device && f.threads === threads);
    if (twice) this.how = { ...this.how, avoid: [...this.how.avoid, { device, threads }] };
    this.fallbacks.push({ device, dtype, threads, code, reason });
    this.standing = await climb(this.bundle, { ...this.how, signal: undefined, device, dtype }, undefined, this.fallbacks);
    this.settleTested();
    // `dispose` may have come while this was under way.
    if (this.disposed) this.standing.attempt.terminate();
  }
}
