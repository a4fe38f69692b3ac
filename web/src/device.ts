/** Device: what this browser supports, found out without starting a backend. */
import { firstLine } from "./errors.js";

/** Why neither WebGPU nor WebNN can be used. */
export const NO_JSPI = "this browser does not support JavaScript promise integration (JSPI)";

export interface Capabilities {
  readonly wasm: boolean;
  /** JavaScript promise integration, which the WebGPU build of the runtime needs. */
  readonly jspi: boolean;
  /** Whether threads can share memory (the page is cross-origin isolated and the browser has SharedArrayBuffer). */
  readonly shared: boolean;
  readonly cores: number;
  readonly gpu: Gpu | null;
  /** Why WebNN cannot be used; empty where it can, undefined where it was not asked for. */
  readonly webnn?: string;
}

export interface Gpu {
  /** Vendor, architecture and description, as far as the browser tells them. */
  readonly name: string;
  /** Whether the adapter is emulated on the CPU: correct, and far slower than WASM. */
  readonly software: boolean;
}

const ADAPTER_TIMEOUT = 2000; // ms: a GPU process that hangs must not block the page
const MAX_THREADS = 4; // more threads hardly speed up batch 1, and need memory

export async function capabilities(askGpu = true, askWebnn = false): Promise<Capabilities> {
  return {
    wasm: typeof WebAssembly === "object",
    jspi: typeof WebAssembly === "object" && "Suspending" in WebAssembly,
    // Some engines report `crossOriginIsolated` without SharedArrayBuffer.
    shared: typeof SharedArrayBuffer !== "undefined" && globalThis.crossOriginIsolated,
    cores: inBrowser()?.hardwareConcurrency || 1,
    gpu: askGpu ? await gpu() : null,
    ...(askWebnn ? { webnn: await refusedWebnn() } : {}),
  };
}

/** Threads for WASM: one core is left to the page. */
export function threadCount(has: Pick<Capabilities, "shared" | "cores">): number {
  return has.shared ? Math.min(MAX_THREADS, Math.max(1, has.cores - 1)) : 1;
}

async function gpu(): Promise<Gpu | null> {
  const api = inBrowser()?.gpu;
  if (!api) return null;
  const timeout = new Promise<null>((resolve) => setTimeout(resolve, ADAPTER_TIMEOUT, null));
  const adapter = await Promise.race([api.requestAdapter().catch(() => null), timeout]);
  if (!adapter) return null;
  // The first versions of WebGPU had no `info`.
  const info = adapter.info as GPUAdapterInfo | undefined;
  const named = `${info?.vendor ?? ""} ${info?.architecture ?? ""} ${info?.description ?? ""}`.toLowerCase();
  return {
    name: named.trim(),
    software: (info?.isFallbackAdapter ?? false) || /swiftshader|llvmpipe|lavapipe|basic render/.test(named),
  };
}

/** Why there is no WebNN here; empty where there is. */
async function refusedWebnn(): Promise<string> {
  const api = (inBrowser() as { readonly ml?: { readonly createContext: () => Promise<unknown> } } | undefined)?.ml;
  if (!api) return "this browser has no WebNN";
  if (!("Suspending" in WebAssembly)) return NO_JSPI;
  const timeout = new Promise<string>((resolve) => setTimeout(resolve, ADAPTER_TIMEOUT, "WebNN does not answer"));
  const context = api.createContext().then(() => "", (error: unknown) => `WebNN gives no context (${firstLine(error)})`);
  return Promise.race([context, timeout]);
}

/** What the browser says of itself; Node 20 has none. */
function inBrowser(): Navigator | undefined {
  return (globalThis as { readonly navigator?: Navigator }).navigator;
}
