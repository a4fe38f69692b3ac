/**
 * Session: one model in onnxruntime-web. The only file that touches onnxruntime-web.
 *
 * The runtime is imported by URL from the bundle, never bundled: an entry that a bundler moved starts its threads from
 * the wrong script and hangs without a word. Its WASM comes by URL too, so that the browser's code cache holds it.
 */
import type * as Ort from "onnxruntime-web";
import { AssetError, BackendError, ShapeError, sentence } from "./errors";
import type { Adapter, Build, Device, RawTensor, Started } from "./wire";

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

/** Written in by the build. */
declare const RUNTIME_VERSION: string;

/** Where the files of a build lie. Their version is in the address, so that hosts may let browsers keep them for good. */
export function runtimeFiles(build: Build, folder: string): { module: string; glue: string; wasm: string } {
  const at = (name: string): string => new URL(`${name}?${RUNTIME_VERSION}`, folder).href;
  const { module, glue, wasm } = RUNTIME_FILES[build];
  return { module: at(module), glue: at(glue), wasm: at(wasm) };
}

/** A 67-byte model (y = Identity(x)): the runtime starts its backend only when a first session is made. */
const IDENTITY = "CAgSADo3ChAKAXgSAXkiCElkZW50aXR5EgFnWg8KAXgSCgoICAESBAoCCAFiDwoBeRIKCggIARIECgIIAUIECgAQEQ==";

const LONGEST = 600_000; // ms that a download of the runtime may take

const NUMBERS = { float32: Float32Array, int64: BigInt64Array, int32: Int32Array, uint8: Uint8Array } as const;

export class Session {
  private session: Ort.InferenceSession | undefined;

  private constructor(
    private readonly ort: typeof Ort,
    private readonly device: Device,
  ) {}

  /**
   * Start the runtime: fetch and compile its WASM, start its threads, get the GPU. Needs no model.
   *
   * @param on - Told when the WASM has arrived, and when the GPU goes away.
   * @throws AssetError if a file of the runtime does not come, BackendError if the runtime does not start.
   */
  static async start(
    how: { build: Build; device: Device; runtime: string; threads: number },
    on: { readonly onarrived: () => void; readonly onlost: (reason: string) => void },
  ): Promise<[Session, Started]> {
    const { module, glue, wasm } = runtimeFiles(how.build, how.runtime);
    prefetch(glue, wasm, on.onarrived);
    const ort = await load(module);
    ort.env.wasm.wasmPaths = { mjs: glue, wasm };
    ort.env.wasm.numThreads = how.threads;
    ort.env.logLevel = "error";
    const session = new Session(ort, how.device);
    const identity = Uint8Array.from(atob(IDENTITY), (c) => c.charCodeAt(0));
    try {
      // Never released: with its last session the runtime destroys the GPU device.
      session.session = await session.create(identity);
    } catch (error) {
      throw new BackendError(`the ${how.device} backend did not start (${sentence(error)})`);
    }
    const adapter = how.device === "webgpu" ? await watch(ort, on.onlost) : null;
    return [session, { threads: how.threads, adapter, version: ort.env.versions.web ?? "" }];
  }

  /** @throws BackendError if the runtime refuses the model. */
  async open(model: Uint8Array): Promise<void> {
    try {
      this.session = await this.create(model);
    } catch (error) {
      throw new BackendError(`the ${this.device} backend cannot open the model (${sentence(error)})`);
    }
  }

  /**
   * Answer raw tensors by name with raw tensors by name.
   *
   * @throws ShapeError for a wrong or missing input, BackendError if the run fails.
   */
  async run(inputs: Readonly<Record<string, RawTensor>>): Promise<Record<string, RawTensor>> {
    if (!this.session) throw new BackendError("the runtime has no model open");
    const feeds: Record<string, Ort.Tensor> = {};
    for (const name of this.session.inputNames) {
      const raw = inputs[name];
      if (!raw) throw new ShapeError(`the model needs an input "${name}", and only ${Object.keys(inputs).join(", ")} came`);
      feeds[name] = this.tensor(name, raw);
    }
    let outputs: Ort.InferenceSession.OnnxValueMapType;
    try {
      outputs = await this.session.run(feeds);
    } catch (error) {
      throw new BackendError(`the ${this.device} backend failed while running (${sentence(error)})`);
    }
    return Object.fromEntries(Object.entries(outputs).map(([name, value]) => [name, plain(value)]));
  }

  private create(model: Uint8Array): Promise<Ort.InferenceSession> {
    return this.ort.InferenceSession.create(model, { executionProviders: [this.device], logSeverityLevel: 3 });
  }

  private tensor(name: string, raw: RawTensor): Ort.Tensor {
    const meta = this.session?.inputMetadata.find((m) => m.name === name);
    const wanted = meta?.isTensor ? meta.shape : undefined;
    const fits =
      !wanted || (wanted.length === raw.shape.length && wanted.every((d, i) => typeof d !== "number" || d === raw.shape[i]));
    if (!fits) {
      throw new ShapeError(`the input "${name}" has the shape [${raw.shape.join(", ")}], and the model takes [${wanted.join(", ")}]`);
    }
    return new this.ort.Tensor(raw.dtype as "float32", raw.data as Float32Array, raw.shape);
  }
}

/**
 * Ask for all of the runtime at once: it would ask for its glue when its module has come, and for its WASM after both.
 * Its own requests get what is on the way; the WASM stays a response of its URL, or the code cache would not know it.
 */
function prefetch(glue: string, wasm: string, onarrived: () => void): void {
  import(/* @vite-ignore */ glue).catch(() => undefined); // the runtime imports it again, and says what is wrong
  const own = globalThis.fetch;
  const coming = own(wasm, { credentials: "same-origin", signal: AbortSignal.timeout(LONGEST) });
  coming.catch(onarrived);
  new PerformanceObserver((list, observer) => {
    if (list.getEntriesByName(wasm).length === 0) return;
    observer.disconnect();
    onarrived();
  }).observe({ type: "resource" });
  globalThis.fetch = (input, how) => {
    if (input !== wasm) return own(input, how);
    globalThis.fetch = own;
    return coming;
  };
}

async function load(url: string): Promise<typeof Ort> {
  try {
    return (await import(/* @vite-ignore */ url)) as typeof Ort;
  } catch (error) {
    throw new AssetError(`the runtime ${url} cannot be loaded (${sentence(error)})`);
  }
}

async function watch(ort: typeof Ort, onlost: (reason: string) => void): Promise<Adapter | null> {
  const device = (await ort.env.webgpu.device) as GPUDevice | undefined;
  if (!device) return null;
  void device.lost.then(({ reason, message }) => {
    onlost(message || reason);
  });
  const { vendor, architecture, description } = device.adapterInfo;
  return { vendor, architecture, description };
}

function plain(tensor: Ort.Tensor): RawTensor {
  const kind = NUMBERS[tensor.type as keyof typeof NUMBERS] as (typeof NUMBERS)["float32"] | undefined;
  if (!kind) throw new BackendError(`the model gave a tensor of type ${tensor.type}, which is not known here`);
  // A copy: the runtime may reuse or share its memory, and shared memory cannot be transferred.
  return { dtype: tensor.type, shape: tensor.dims, data: kind.from(tensor.data as Float32Array) };
}
