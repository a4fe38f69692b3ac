/**
 * @edgekit/web in Node and Deno: the same library on onnxruntime-node, or on onnxruntime-web's WebAssembly, whichever is installed.
 *
 * A bundle is a folder or an address. Neither decodes pictures: `image` is pixels or a tensor in a size that the model takes.
 */
import { readFile } from "node:fs/promises";
import { fileURLToPath, pathToFileURL } from "node:url";
import { BackendError } from "./errors.js";
import { setEnvironment } from "./environment.js";
import { InProcessClient } from "./in_process_client.js";
import { type Runtime, Session } from "./session.js";
import type { Device, Started } from "./protocol.js";

export * from "./index.js";

setEnvironment({
  openClient: () => new InProcessClient(start),
  fetch: fetchAnywhere,
  draws: false,
  base: () => pathToFileURL(`${process.cwd()}/`).href,
});

async function fetchAnywhere(url: string, init: RequestInit): Promise<Response> {
  return url.startsWith("file:") ? new Response(await readFile(fileURLToPath(url))) : fetch(url, init);
}

/** Names that a bundler must not follow. */
const RUNTIMES: readonly (readonly [string, Device])[] = [["onnxruntime-node", "cpu"], ["onnxruntime-web", "wasm"]];

async function start(): Promise<[Session, Started]> {
  for (const [name, device] of RUNTIMES) {
    const ort = await importRuntime(name);
    if (!ort) continue;
    ort.env.logLevel = "error";
    if (device === "wasm") ort.env.wasm.numThreads = 1;
    const version = (device === "wasm" ? ort.env.versions.web : ort.env.versions.node) ?? "";
    return [Session.of(ort, device), { device, threads: 1, adapter: null, version }];
  }
  throw new BackendError("no runtime is installed: npm install onnxruntime-node, or onnxruntime-web");
}

/** The runtime of a name, or undefined where it is not installed. @throws BackendError where it is, and does not load. */
async function importRuntime(name: string): Promise<Runtime | undefined> {
  try {
    const found = (await import(/* @vite-ignore */ name)) as Partial<Runtime> & { readonly default?: Runtime };
    return found.InferenceSession ? (found) : found.default;
  } catch (error) {
    if ((error as { code?: string }).code === "ERR_MODULE_NOT_FOUND") return undefined;
    throw new BackendError(`${name} does not load (${String(error)})`);
  }
}
