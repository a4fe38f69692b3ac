/**
 * Session: one model in onnxruntime-web. The only file that uses onnxruntime-web.
 *
 * The runtime is imported by URL and is not bundled: a bundled entry starts its threads from the wrong script and hangs
 * without an error. Its WASM is loaded by URL too, so that the browser's code cache can store it.
 */
import type * as Ort from "onnxruntime-web";
import { type OnBytes, sentBytes } from "./download.js";
import { AssetError, BackendError, ShapeError, firstLine } from "./errors.js";
import type { Tensor } from "./manifest.js";
import type { Adapter, Build, Device, Started } from "./protocol.js";
import type { RawTensor } from "./tensor.js";

/** The files of each build, below `ort/`. */
export const RUNTIME_FILES: Record<Build, { readonly module: string; readonly glue: string; readonly wasm: string }> = {
  wasm: { module: "ort.wasm.min.mjs", glue: "ort-wasm-simd-threaded.mjs", wasm: "ort-wasm-simd-threaded.wasm" },
  jspi: { module: "ort.jspi.min.mjs", glue: "ort-wasm-simd-threaded.jspi.mjs", wasm: "ort-wasm-simd-threaded.jspi.wasm" },
  asyncify: {
    module: "ort.webgpu.min.mjs",
    glue: "ort-wasm-simd-threaded.asyncify.mjs",
    wasm: "ort-wasm-simd-threaded.asyncify.wasm",
  },
};

/** Defined by the build (vite.config.ts). */
declare const RUNTIME_VERSION: string;

/** The URLs of a build's files. They contain the version, so that hosts may declare the files immutable. */
export function runtimeFiles(build: Build, folder: string): { module: string; glue: string; wasm: string } {
  const urlOf = (name: string): string => new URL(`${name}?${RUNTIME_VERSION}`, folder).href;
  const { module, glue, wasm } = RUNTIME_FILES[build];
  return { module: urlOf(module), glue: urlOf(glue), wasm: urlOf(wasm) };
}

/** A 67-byte model (y = Identity(x)): the runtime starts its backend only when a first session is made. */
const IDENTITY = "CAgSADo3ChAKAXgSAXkiCElkZW50aXR5EgFnWg8KAXgSCgoICAESBAoCCAFiDwoBeRIKCggIARIECgIIAUIECgAQEQ==";

const DOWNLOAD_TIMEOUT = 600_000; // ms for the download of the runtime

const ARRAY_TYPES = {
  float32: Float32Array,
  float64: Float64Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int8: Int8Array,
  uint8: Uint8Array,
  bool: Uint8Array,
} as const;

/** onnxruntime-web, or onnxruntime-node, which has the same interface. */
export type Runtime = typeof Ort;

interface Events {
  /** The runtime's WASM has arrived. */
  readonly onarrived: () => void;
  /** So many bytes of it have. */
  readonly ondata: OnBytes;
  readonly onlost: (reason: string) => void;
}

export class Session {
  private session: Ort.InferenceSession | undefined;
  /** The model of a device without dynamic shapes, and the sizes in which its session has it. */
  private unsized: { readonly model: Uint8Array; readonly inputs: readonly Pick<Tensor, "name" | "shape">[]; readonly sizes: string } | undefined;

  private constructor(
    private readonly ort: typeof Ort,
    private readonly device: Device,
  ) {}

  /** A session of a runtime that is there already; it starts when it opens its first model. */
  static of(ort: Runtime, device: Device): Session {
    return new Session(ort, device);
  }

  /**
   * Start the runtime: fetch and compile its WASM, start its threads, request the GPU device. Needs no model.
   *
   * @param events - Called when the WASM has arrived, and when the GPU device is lost.
   * @throws AssetError if a file of the runtime cannot be loaded, BackendError if the runtime does not start.
   */
  static async start(
    options: { build: Build; device: Device; runtime: string; threads: number },
    events: Events,
  ): Promise<[Session, Started]> {
    const { module, glue, wasm } = runtimeFiles(options.build, options.runtime);
    prefetch(glue, wasm, events);
    const ort = await importRuntime(module);
    ort.env.wasm.wasmPaths = { mjs: glue, wasm };
    ort.env.wasm.numThreads = options.threads;
    ort.env.logLevel = "error";
    const session = new Session(ort, options.device);
    const identity = Uint8Array.from(atob(IDENTITY), (c) => c.charCodeAt(0));
    try {
      // Never released: the runtime destroys the GPU device together with its last session.
      session.session = await session.create(identity);
    } catch (error) {
      throw new BackendError(`the ${options.device} backend did not start (${firstLine(error)})`);
    }
    const adapter = options.device === "webgpu" ? await watchDevice(ort, events.onlost) : null;
    return [session, { threads: options.threads, adapter, version: ort.env.versions.web ?? "" }];
  }

  /** @throws BackendError if the runtime refuses the model. */
  async open(model: Uint8Array, inputs: readonly Pick<Tensor, "name" | "shape">[]): Promise<void> {
    if (this.device === "webnn") this.unsized = { model, inputs, sizes: "" }; // opened in the sizes of each run
    else await this.openSized(model);
  }

  private async openSized(model: Uint8Array, sizes: Readonly<Record<string, number>> = {}): Promise<void> {
    try {
      this.session = await this.create(model, sizes);
    } catch (error) {
      throw new BackendError(`the ${this.device} backend cannot open the model (${firstLine(error)})`);
    }
  }

  /** WebNN has no dynamic shapes: open the model in the sizes of these inputs, unless it is. */
  private async fit(raw: Readonly<Record<string, RawTensor>>): Promise<void> {
    if (!this.unsized) return;
    const { model, inputs } = this.unsized;
    const named = inputs.flatMap(({ name, shape }) => shape.flatMap((axis, i) => (typeof axis === "string" ? [[axis, raw[name]?.shape[i] ?? 1] as const] : [])));
    const sizes = JSON.stringify(named);
    if (sizes === this.unsized.sizes) return;
    const before = this.unsized.sizes ? this.session : undefined;
    await this.openSized(model, Object.fromEntries(named));
    this.unsized = { ...this.unsized, sizes };
    await before?.release();
  }

  /**
   * Run the model: raw tensors by name in, raw tensors by name out.
   *
   * @throws ShapeError for a wrong or missing input, BackendError if the run fails.
   */
  async run(inputs: Readonly<Record<string, RawTensor>>): Promise<Record<string, RawTensor>> {
    await this.fit(inputs);
    if (!this.session) throw new BackendError("no model is open in the runtime");
    const feeds: Record<string, Ort.Tensor> = {};
    for (const name of this.session.inputNames) {
      const raw = inputs[name];
      if (!raw) throw new ShapeError(`the model input "${name}" is missing: the inputs given are ${Object.keys(inputs).join(", ")}`);
      feeds[name] = this.tensor(name, raw);
    }
    let outputs: Ort.InferenceSession.OnnxValueMapType;
    try {
      outputs = await this.session.run(feeds);
    } catch (error) {
      throw new BackendError(`the ${this.device} backend failed during the run (${firstLine(error)})`);
    }
    return Object.fromEntries(Object.entries(outputs).map(([name, value]) => [name, toRawTensor(value)]));
  }

  release(): Promise<void> {
    return this.session?.release() ?? Promise.resolve();
  }

  private create(model: Uint8Array, freeDimensionOverrides: Readonly<Record<string, number>> = {}): Promise<Ort.InferenceSession> {
    return this.ort.InferenceSession.create(model, { executionProviders: [this.device], logSeverityLevel: 3, freeDimensionOverrides });
  }

  private tensor(name: string, raw: RawTensor): Ort.Tensor {
    const meta = this.session?.inputMetadata.find((m) => m.name === name);
    const expected = meta?.isTensor ? meta.shape : undefined;
    const fits =
      !expected || (expected.length === raw.shape.length && expected.every((d, i) => typeof d !== "number" || d === raw.shape[i]));
    if (!fits) {
      throw new ShapeError(`the input "${name}" has the shape [${raw.shape.join(", ")}], but the model expects [${expected.join(", ")}]`);
    }
    return new this.ort.Tensor(raw.dtype as "float32", raw.data as Float32Array, raw.shape);
  }
}

/** Starts a session in a browser's worker. */
export function startInBrowser(...given: Parameters<typeof Session.start>): Promise<[Session, Started]> {
  return Session.start(...given);
}

/**
 * Fetch all files of the runtime at once: the runtime itself would fetch its glue after its module, and its WASM after both.
 * The runtime's own request gets the response that is on its way. The WASM must be an unchanged response, for the code cache.
 */
function prefetch(glue: string, wasm: string, { onarrived, ondata }: Events): void {
  import(/* @vite-ignore */ glue).catch(() => undefined); // the runtime imports it again, and reports the error
  const originalFetch = globalThis.fetch;
  const response = originalFetch(wasm, { credentials: "same-origin", signal: AbortSignal.timeout(DOWNLOAD_TIMEOUT) });
  response.then((answer) => countBytes(answer.clone(), ondata), onarrived);
  new PerformanceObserver((list, observer) => {
    if (list.getEntriesByName(wasm).length === 0) return;
    observer.disconnect();
    onarrived();
  }).observe({ type: "resource" });
  globalThis.fetch = (input, init) => {
    if (input !== wasm) return originalFetch(input, init);
    globalThis.fetch = originalFetch;
    return response;
  };
}

/** Count the bytes of a copy: the runtime gets the response itself, so that the browser may keep its compiled code. */
async function countBytes(response: Response, ondata: Events["ondata"]): Promise<void> {
  let loaded = 0;
  const sent = sentBytes(response);
  const reader = response.body?.getReader();
  for (let part = await reader?.read(); part?.value; part = await reader?.read()) ondata((loaded += part.value.length), false, sent);
}

async function importRuntime(url: string): Promise<typeof Ort> {
  try {
    return (await import(/* @vite-ignore */ url)) as typeof Ort;
  } catch (error) {
    throw new AssetError(`the runtime ${url} cannot be loaded (${firstLine(error)})`);
  }
}

async function watchDevice(ort: typeof Ort, onlost: (reason: string) => void): Promise<Adapter | null> {
  const device = (await ort.env.webgpu.device) as GPUDevice | undefined;
  if (!device) return null;
  void device.lost.then(({ reason, message }) => {
    onlost(message || reason);
  });
  const { vendor, architecture, description } = device.adapterInfo;
  return { vendor, architecture, description };
}

function toRawTensor(tensor: Ort.Tensor): RawTensor {
  const kind = ARRAY_TYPES[tensor.type as keyof typeof ARRAY_TYPES] as (typeof ARRAY_TYPES)["float32"] | undefined;
  if (!kind) throw new BackendError(`the model returned a tensor of the unsupported type ${tensor.type}`);
  // A copy: the runtime may reuse or share its memory, and shared memory cannot be transferred.
  return { dtype: tensor.type, shape: tensor.dims, data: kind.from(tensor.data as Float32Array) };
}
