/**
 * Bundle: the folder that `edgekit export --target web` wrote, seen through its manifest.
 *
 * It fetches files by the manifest's names, counts bytes by the manifest's sizes (a `content-length` is that of the
 * compressed body, and shows 619 %), and hands nothing out whose sha256 is not the manifest's.
 */
import { sha256 } from "./digest";
import { AssetError, HashError, ManifestError, sentence } from "./errors";
import { type BundleFile, type Dtype, type Manifest, type Variant, parseManifest } from "./manifest";
import { clear, drop, fetchStored, isStored, store } from "./store";

export interface Fetching {
  readonly signal?: AbortSignal | undefined;
  /** Called with the bytes that have arrived, in the manifest's count. */
  readonly onprogress?: ((loaded: number, fromCache: boolean) => void) | undefined;
  /** Keep the file in the Cache API (models); other files are left to the HTTP cache. */
  readonly keep?: boolean;
}

export class Bundle {
  private constructor(
    /** The folder's URL, with a slash at its end. */
    readonly url: string,
    readonly manifest: Manifest,
  ) {}

  /**
   * Read a bundle's manifest.
   *
   * @param url - The folder or its manifest.json, relative to the page or absolute.
   * @throws AssetError if it cannot be fetched, ManifestError if it is no manifest.
   */
  static async open(url: string | URL, signal?: AbortSignal): Promise<Bundle> {
    const base = folder(url);
    const at = new URL("manifest.json", base).href;
    const response = await get(at, signal, "no-cache");
    let parsed: unknown;
    try {
      parsed = await response.json();
    } catch (error) {
      signal?.throwIfAborted();
      throw new ManifestError(`the manifest ${at} is damaged: ${sentence(error)}`);
    }
    return new Bundle(base, parseManifest(parsed, at));
  }

  /** Where a path of the bundle lies. */
  at(path: string): string {
    return new URL(path, this.url).href;
  }

  file(path: string): BundleFile | undefined {
    return this.manifest.files.find((f) => f.path === path);
  }

  variant(dtype: Dtype): Variant | undefined {
    return this.manifest.variants.find((v) => v.name === dtype);
  }

  /**
   * The bytes of one file, verified.
   *
   * @throws AssetError if it does not arrive, HashError if it arrives twice with another content.
   */
  async fetch(path: string, how: Fetching = {}): Promise<Uint8Array<ArrayBuffer>> {
    const file = this.file(path);
    if (!file) throw new AssetError(`the bundle ${this.url} has no file "${path}"`);
    const kept = how.keep ? await this.kept(file) : undefined;
    if (kept) {
      how.onprogress?.(file.size, true);
      return kept;
    }
    const found = await this.download(file, how);
    if (how.keep) void store(file.sha256, found, this.url, file.path);
    return found;
  }

  async isCached(path: string): Promise<boolean> {
    const file = this.file(path);
    return file !== undefined && (await isStored(file.sha256));
  }

  /** Forget what this bundle keeps in the Cache API. Returns the number of files. */
  clearCache(): Promise<number> {
    return clear(this.url);
  }

  private async kept(file: BundleFile): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const bytes = await fetchStored(file.sha256);
    if (bytes && (await sha256(bytes)) === file.sha256) return bytes;
    if (bytes) await drop(file.sha256);
    return undefined;
  }

  private async download(file: BundleFile, how: Fetching): Promise<Uint8Array<ArrayBuffer>> {
    const url = this.at(file.path);
    let came = "";
    // A second try past the HTTP cache: an old or damaged copy may sit there.
    for (const cache of ["default", "reload"] as const) {
      const response = await get(url, how.signal, cache);
      const bytes = await body(response, file, url, how);
      const hash = await sha256(bytes);
      if (hash === file.sha256) return bytes;
      came = `${String(bytes.length)} bytes with sha256 ${hash.slice(0, 12)}…`;
    }
    throw new HashError(
      `${url} is not the file that the manifest names: ${String(file.size)} bytes with sha256 ${file.sha256.slice(0, 12)}… were expected, and ${came} came; the bundle is damaged or half updated`,
    );
  }
}

/** The folder of a bundle, from its own URL or that of its manifest. */
export function folder(url: string | URL): string {
  const full = new URL(url, globalThis.location.href);
  full.hash = "";
  full.search = "";
  if (full.pathname.endsWith("/manifest.json")) full.pathname = full.pathname.slice(0, -"manifest.json".length);
  if (!full.pathname.endsWith("/")) full.pathname += "/";
  return full.href;
}

async function get(url: string, signal: AbortSignal | undefined, cache: RequestCache): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, { cache, signal: signal ?? null });
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
      const { done, value } = await reader.read();
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
    throw new AssetError(`the download of ${url} broke off after ${String(loaded)} of ${String(file.size)} bytes`);
  }
  return bytes.subarray(0, loaded);
}
