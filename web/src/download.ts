/**
 * Download: the verified bytes of one file of a bundle, from the Cache API or the network.
 *
 * Bytes are counted by the manifest's sizes: a `content-length` is that of the compressed body, and shows 619 %.
 */
import { sha256 } from "./digest";
import { AssetError, HashError, sentence } from "./errors";
import type { BundleFile } from "./manifest";
import { drop, fetchStored, store } from "./store";

/** What is fetched, in a form that goes to a worker. */
export interface Wanted {
  readonly file: BundleFile;
  /** Where the file lies. */
  readonly url: string;
  /** Where its bundle lies: what is kept is kept for it. */
  readonly bundle: string;
}

export interface Fetching {
  readonly signal?: AbortSignal | undefined;
  /** Called with the bytes that have arrived, in the manifest's count. */
  readonly onprogress?: ((loaded: number, fromCache: boolean) => void) | undefined;
}

const STALL = 60_000; // ms in which nothing comes

/**
 * The bytes of one file, verified.
 *
 * @throws AssetError if it does not arrive, HashError if it arrives twice with another content.
 */
export async function fetchFile(wanted: Wanted, how: Fetching): Promise<Uint8Array<ArrayBuffer>> {
  try {
    return await verified(wanted, how, "default");
  } catch (error) {
    if (!(error instanceof HashError)) throw error;
    // A second try past the HTTP cache: an old or damaged copy may sit there.
    return verified(wanted, how, "reload");
  }
}

async function verified({ file, url }: Wanted, how: Fetching, cache: RequestCache): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = await body(await get(url, how.signal, cache), file, url, how);
  const hash = await sha256(bytes);
  if (hash === file.sha256) return bytes;
  throw new HashError(
    `${url} is not the file that the manifest names: ${String(file.size)} bytes with sha256 ${file.sha256.slice(0, 12)}… were expected, and ${String(bytes.length)} bytes with sha256 ${hash.slice(0, 12)}… came; the bundle is damaged or half updated`,
  );
}

/**
 * The bytes of a model: those that an earlier visit kept in the Cache API, or else a download, which is then kept. Other
 * files are left to the HTTP cache.
 *
 * @returns The bytes, and when they are kept.
 * @throws What `fetchFile` throws.
 */
export async function fetchModel(wanted: Wanted, how: Fetching): Promise<[Uint8Array<ArrayBuffer>, Promise<void>]> {
  const { file, bundle } = wanted;
  const found = await kept(file);
  if (found) {
    how.onprogress?.(file.size, true);
    return [found, Promise.resolve()];
  }
  const came = await fetchFile(wanted, how);
  return [came, store(file.sha256, came, bundle, file.path)];
}

async function kept(file: BundleFile): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const bytes = await fetchStored(file.sha256);
  if (bytes && (await sha256(bytes)) === file.sha256) return bytes;
  if (bytes) await drop(file.sha256);
  return undefined;
}

/** Fetch, with a sentence where that fails. */
export async function get(url: string, signal: AbortSignal | undefined, cache: RequestCache): Promise<Response> {
  let response: Response;
  try {
    response = await moving(fetch(url, { cache, signal: signal ?? null }));
  } catch (error) {
    signal?.throwIfAborted();
    throw new AssetError(`${url} cannot be fetched (${sentence(error)}): check the address and the connection`);
  }
  const type = response.headers.get("content-type") ?? "no content type";
  if (!response.ok) {
    throw new AssetError(`${url} cannot be fetched: the server answered ${String(response.status)} (${type})`);
  }
  if (type.startsWith("text/html")) {
    throw new AssetError(`${url} is not there: the server answered with an HTML page instead`);
  }
  return response;
}

/** What comes of a step of a download, which may take long in all but must not stand still. */
async function moving<T>(step: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const stall = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new AssetError(`nothing came for ${String(STALL / 1000)} s`));
    }, STALL);
  });
  return Promise.race([step, stall]).finally(() => {
    clearTimeout(timer);
  });
}

async function body(
  response: Response,
  file: BundleFile,
  url: string,
  how: Fetching,
): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(file.size);
  let loaded = 0;
  const reader = response.body?.getReader();
  if (!reader) throw new AssetError(`${url} came without a body`);
  try {
    for (;;) {
      const { done, value } = await moving(reader.read());
      if (done) break;
      if (loaded + value.length > file.size) {
        await reader.cancel();
        throw new HashError(`${url} is larger than the ${String(file.size)} bytes that the manifest names`);
      }
      bytes.set(value, loaded);
      loaded += value.length;
      how.onprogress?.(loaded, false);
    }
  } catch (error) {
    how.signal?.throwIfAborted();
    if (error instanceof HashError) throw error;
    void reader.cancel().catch(() => undefined);
    throw new AssetError(
      `the download of ${url} broke off after ${String(loaded)} of ${String(file.size)} bytes (${sentence(error)})`,
    );
  }
  return bytes.subarray(0, loaded);
}
