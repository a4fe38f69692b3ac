/** Device: what this browser offers, asked without starting anything. */
export interface Capabilities {
  readonly wasm: boolean;
  /** JavaScript promise integration: what the WebGPU build of the runtime needs. */
  readonly jspi: boolean;
  /** Whether threads can share memory (the page is cross-origin isolated and the browser has SharedArrayBuffer). */
  readonly shared: boolean;
  readonly cores: number;
  readonly gpu: Gpu | null;
}

export interface Gpu {
  /** 16-bit floats in shaders. */
  readonly f16: boolean;
  /** Whether a CPU pretends to be the GPU: right, and far slower than WASM. */
  readonly software: boolean;
}

const ADAPTER_LIMIT = 2000; // ms: a stuck GPU process must not hold the page up
const MOST_THREADS = 4; // more help little at batch 1 and take memory

export async function capabilities(askGpu = true): Promise<Capabilities> {
  return {
    wasm: typeof WebAssembly === "object",
    jspi: typeof WebAssembly === "object" && "Suspending" in WebAssembly,
    // Some engines say `crossOriginIsolated` and have no SharedArrayBuffer.
    shared: typeof SharedArrayBuffer !== "undefined" && globalThis.crossOriginIsolated,
    cores: navigator.hardwareConcurrency || 1,
    gpu: askGpu ? await gpu() : null,
  };
}

/** Threads for WASM: one core stays free for the page. */
export function threadCount(has: Pick<Capabilities, "shared" | "cores">): number {
  return has.shared ? Math.min(MOST_THREADS, Math.max(1, has.cores - 1)) : 1;
}

async function gpu(): Promise<Gpu | null> {
  const api = (navigator as { gpu?: GPU }).gpu;
  if (!api) return null;
  const late = new Promise<null>((resolve) => setTimeout(resolve, ADAPTER_LIMIT, null));
  const adapter = await Promise.race([api.requestAdapter().catch(() => null), late]);
  if (!adapter) return null;
  // `info` came after the first shipped versions of WebGPU.
  const info = adapter.info as GPUAdapterInfo | undefined;
  const named = `${info?.vendor ?? ""} ${info?.architecture ?? ""} ${info?.description ?? ""}`.toLowerCase();
  return {
    f16: adapter.features.has("shader-f16"),
    software: (info?.isFallbackAdapter ?? false) || /swiftshader|llvmpipe|lavapipe|basic render/.test(named),
  };
}
