/**
 * Download: the verified bytes of one file of a bundle, from the Cache API or the network.
 */
import { fetchStored, removeStored, store } from "./cache_storage.js";
import { sha256 } from "./digest.js";
import { environment } from "./environment.js";
import { AssetError, HashError, firstLine } from "./errors.js";
import type { BundleFile } from "./manifest.js";

/** A file to fetch, in a form that can be sent to a worker. */
export interface FileRequest {
  readonly file: BundleFile;
  /** URL of the file. */
  readonly url: string;
  /** URL of its bundle, under which it is stored. */
  readonly bundle: string;
}

export interface FetchOptions {
  readonly signal?: AbortSignal | undefined;
  /** Called with the number of decoded bytes so far, and that of all bytes that are sent where it is known. */
  readonly onprogress?: OnBytes | undefined;
}

export type OnBytes = (loaded: number, fromCache: boolean, sent?: number) => void;

const STALL_LIMIT = 60_000; // ms without any data

/**
 * The verified bytes of one file.
 *
 * @throws AssetError if it cannot be fetched, HashError if its content differs from the manifest twice.
 */
export async function fetchFile(request: FileRequest, options: FetchOptions): Promise<Uint8Array<ArrayBuffer>> {
  try {
    return await fetchVerified(request, options, "default");
  } catch (error) {
    if (!(error instanceof HashError)) throw error;
    // The HTTP cache may hold an old or damaged copy: fetch again without it.
    return fetchVerified(request, options, "reload");
  }
}

async function fetchVerified({ file, url }: FileRequest, options: FetchOptions, cache: RequestCache): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = await readBody(await fetchResponse(url, options.signal, cache), file, url, options);
  const hash = await sha256(bytes);
  if (hash === file.sha256) return bytes;
  throw new HashError(
    `${url} does not match the manifest: expected ${String(file.size)} bytes with sha256 ${file.sha256.slice(0, 12)}…, received ${String(bytes.length)} bytes with sha256 ${hash.slice(0, 12)}…; the bundle is damaged or only partly updated`,
  );
}

/**
 * The bytes of a model: from the Cache API where an earlier visit stored them, else downloaded and stored. Other files are
 * left to the HTTP cache.
 *
 * @returns The bytes, and a promise that resolves when they are stored.
 * @throws AssetError or HashError, as `fetchFile`.
 */
export async function fetchModel(request: FileRequest, options: FetchOptions): Promise<[Uint8Array<ArrayBuffer>, Promise<void>]> {
  const { file, bundle } = request;
  const cached = await readCached(file);
  if (cached) {
    options.onprogress?.(file.size, true);
    return [cached, Promise.resolve()];
  }
  const bytes = await fetchFile(request, options);
  return [bytes, store(file.sha256, bytes, bundle, file.path)];
}

async function readCached(file: BundleFile): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const bytes = await fetchStored(file.sha256);
  if (bytes && (await sha256(bytes)) === file.sha256) return bytes;
  if (bytes) await removeStored(file.sha256);
  return undefined;
}

/** Fetch a URL. @throws AssetError if there is no usable response. */
export async function fetchResponse(url: string, signal: AbortSignal | undefined, cache: RequestCache): Promise<Response> {
  let response: Response;
  try {
    response = await withStallLimit(environment().fetch(url, { cache, signal: signal ?? null }));
  } catch (error) {
    signal?.throwIfAborted();
    throw new AssetError(`${url} cannot be fetched (${firstLine(error)}): check the address and the connection`);
  }
  const type = response.headers.get("content-type") ?? "no content type";
  if (!response.ok) {
    throw new AssetError(`${url} cannot be fetched: the server answered ${String(response.status)} (${type})`);
  }
  if (type.startsWith("text/html")) {
    throw new AssetError(`${url} was not found: the server answered with an HTML page instead`);
  }
  return response;
}

/** The result of one step of a download: the whole may take long, but a step without any data is an error. */
async function withStallLimit<T>(step: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const stall = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new AssetError(`no data for ${String(STALL_LIMIT / 1000)} s`));
    }, STALL_LIMIT);
  });
  return Promise.race([step, stall]).finally(() => {
    clearTimeout(timer);
  });
}

/** How many bytes a server sends for a response: of a compressed one fewer than are read. */
export function sentBytes({ headers }: Response): number | undefined {
  const length = Number(headers.get("content-length") ?? "");
  return Number.isSafeInteger(length) && length > 0 ? length : undefined;
}

async function readBody(
  response: Response,
  file: BundleFile,
  url: string,
  options: FetchOptions,
): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(file.size);
  let loaded = 0;
  const sent = sentBytes(response);
  const reader = response.body?.getReader();
  if (!reader) throw new AssetError(`the response for ${url} has no body`);
  try {
    for (;;) {
      const { done, value } = await withStallLimit(reader.read());
      if (done) break;
      if (loaded + value.length > file.size) {
        await reader.cancel();
        throw new HashError(`${url} is larger than the ${String(file.size)} bytes in the manifest`);
      }
      bytes.set(value, loaded);
      loaded += value.length;
      options.onprogress?.(loaded, false, sent);
    }
  } catch (error) {
    options.signal?.throwIfAborted();
    if (error instanceof HashError) throw error;
    void reader.cancel().catch(() => undefined);
    throw new AssetError(
      `the download of ${url} stopped after ${String(loaded)} of ${String(file.size)} bytes (${firstLine(error)})`,
    );
  }
  return bytes.subarray(0, loaded);
}
