/**
 * Runner: a model that answers. `load` makes one, `dispose` ends it.
 *
 *     const runner = await load("./bundle/", { device: "auto", dtype: "auto" });
 *     const { relevance, budgets, indices } = await runner.run({ image, query: "red circle" });
 */
import { Attempt } from "./attempt";
import { Bundle, folder } from "./bundle";
import { capabilities } from "./device";
import { ShapeError, UsageError } from "./errors";
import type { SelfTestReport } from "./golden";
import { type Climb, type Fallback, type LoadTimings, type Standing, binary, climb, early, planned, selfTest } from "./ladder";
import { type Dtype, type Tensor, sizeOf } from "./manifest";
import { type ImageSource, isTensor, sendable } from "./picture";
import { type DeviceOption, type DtypeOption, checkOptions } from "./plan";
import { Progress, type ProgressCallback } from "./progress";
import { type Encoded, QueryEncoder } from "./query";
import { runtimeFiles } from "./session";
import type { Adapter, Answer, Build, Device, RawTensor } from "./wire";

export interface LoadOptions {
  readonly device?: DeviceOption;
  readonly dtype?: DtypeOption;
  readonly progress_callback?: ProgressCallback;
  readonly signal?: AbortSignal;
  /** Check the device against the golden vectors before use (default true). */
  readonly selfTest?: boolean;
  /** Folder of the runtime's files; default `ort/` in the bundle. */
  readonly runtime?: string | URL;
  /** Milliseconds that a start, an opening or a run may take (default 60,000). */
  readonly timeout?: number;
}

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

const WORDS = ["vocabulary.json", "embeddings.bin"] as const;
const TIMEOUT = 60_000; // ms
const OPTIONS = ["device", "dtype", "progress_callback", "signal", "selfTest", "runtime", "timeout"];

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
    const encoder = readEncoder(bundle, options.signal);
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

/** Whether the model that `load` would take first is kept here already. */
export async function isCached(url: string | URL, options: LoadOptions = {}): Promise<boolean> {
  const { bundle, path } = await choose(url, options);
  return bundle.isCached(path);
}

/**
 * Fetch and keep what `load` would take first, without starting the runtime.
 *
 * @throws EdgekitError whose `code` says what is wrong; the signal's reason if it was aborted.
 */
export async function preload(url: string | URL, options: LoadOptions = {}): Promise<void> {
  const { bundle, path, build, how } = await choose(url, options);
  const beside = [...WORDS, bundle.manifest.golden, binary(bundle.manifest.golden)].filter((p) => bundle.file(p)).map((p) => bundle.at(p));
  const wanted = bundle.wanted(path);
  how.progress.expect(path, wanted.file.size);
  const attempt = new Attempt();
  try {
    await attempt.ask(
      { op: "keep", wanted, others: [...Object.values(runtimeFiles(build, how.runtime)), ...beside] },
      {
        what: "fetching the model",
        signal: options.signal,
        onprogress: (loaded, cached) => {
          how.progress.at(path, loaded, cached);
        },
      },
    );
    how.progress.ready();
  } finally {
    attempt.terminate();
  }
}

/** Forget the models kept for a bundle. Returns how many files that were. */
export async function clearCache(url: string | URL): Promise<number> {
  return (await Bundle.open(url)).clearCache();
}

export class Runner {
  private disposed = false;
  private rebuilding: Promise<void> | undefined;

  /** Made by `load`. */
  constructor(
    readonly bundle: Bundle,
    private readonly how: Climb,
    private standing: Standing,
    /** The words that the model knows; undefined where it takes vectors only. */
    readonly encoder: QueryEncoder | undefined,
    private readonly fallbacks: Fallback[],
    private readonly total: number,
  ) {}

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
    const { vector, known, unknown } = this.encode(input.query);
    const { height, width } = this.size(input);
    const image = await sendable(input.image);
    await this.ensure();
    const answer = await this.standing.attempt.ask(
      { op: "run", image, query: vector, height, width },
      { limit: this.how.timeout, what: "the run", signal: options.signal },
    );
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
      if (value >= axis.minimum && value <= axis.maximum && value % axis.multiple_of === 0) return;
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
    // Once is bad luck; a device that fails twice is left alone.
    const again = !this.fallbacks.some((f) => f.device === device && f.threads === threads);
    this.fallbacks.push({ device, dtype, threads, code, reason });
    const how = { ...this.how, signal: undefined, dtype, device: again ? device : ("wasm" as const) };
    this.standing = await climb(this.bundle, how, undefined, this.fallbacks);
    // `dispose` may have come while this was under way.
    if (this.disposed) this.standing.attempt.terminate();
  }
}

async function prepare(url: string | URL, options: LoadOptions): Promise<Climb> {
  const { device = "auto", dtype = "auto", signal } = options;
  const strange = Object.keys(options).find((name) => !OPTIONS.includes(name));
  if (strange) throw new UsageError(`there is no option "${strange}": possible are ${OPTIONS.join(", ")}`);
  checkOptions(device, dtype);
  signal?.throwIfAborted();
  const runtime = new URL(options.runtime ?? new URL("ort/", folder(url)), globalThis.location.href).href;
  return {
    device,
    dtype,
    has: await capabilities(device !== "wasm"),
    runtime: runtime.endsWith("/") ? runtime : `${runtime}/`,
    selfTest: options.selfTest ?? true,
    timeout: options.timeout ?? TIMEOUT,
    signal,
    progress: new Progress(options.progress_callback),
  };
}

async function choose(url: string | URL, options: LoadOptions): Promise<{ bundle: Bundle; path: string; build: Build; how: Climb }> {
  const [how, bundle] = await Promise.all([prepare(url, options), Bundle.open(url, options.signal)]);
  const { rungs } = planned(bundle, how);
  const [first] = rungs;
  const path = first && bundle.variant(first.dtype)?.path;
  if (!path) throw new UsageError("the bundle has no model for these options");
  return { bundle, path, build: first.build, how };
}

async function readEncoder(bundle: Bundle, signal: AbortSignal | undefined): Promise<QueryEncoder | undefined> {
  const [vocabulary, embeddings] = WORDS;
  if (!bundle.file(vocabulary) || !bundle.file(embeddings)) return undefined;
  const [words, table] = await Promise.all([bundle.fetch(vocabulary, { signal }), bundle.fetch(embeddings, { signal })]);
  return QueryEncoder.from(words, table, bundle.at(embeddings));
}

