/**
 * Bundle: the folder that `edgekit export -t web` wrote, accessed through its manifest.
 *
 * It fetches files by their path in the manifest, and returns no file whose sha256 differs from the manifest's.
 */
import { type FetchOptions, type FileRequest, fetchFile, fetchResponse } from "./download.js";
import { environment } from "./environment.js";
import { AssetError, ManifestError, UsageError, firstLine } from "./errors.js";
import { type BundleFile, type Dtype, type Manifest, type Variant, parseManifest } from "./manifest.js";
import { clearStored, isStored } from "./cache_storage.js";

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
   * @throws AssetError if it cannot be fetched, ManifestError if it is not valid.
   */
  static async open(url: string | URL, signal?: AbortSignal): Promise<Bundle> {
    const base = bundleFolder(url);
    const at = new URL("manifest.json", base).href;
    const response = await fetchResponse(at, signal, "no-cache");
    let parsed: unknown;
    try {
      parsed = await response.json();
    } catch (error) {
      signal?.throwIfAborted();
      throw new ManifestError(`the manifest ${at} is not valid JSON: ${firstLine(error)}`);
    }
    return new Bundle(base, parseManifest(parsed, at));
  }

  /** The URL of a path in the bundle. */
  urlOf(path: string): string {
    return new URL(path, this.url).href;
  }

  file(path: string): BundleFile | undefined {
    return this.manifest.files.find((f) => f.path === path);
  }

  variant(dtype: Dtype): Variant | undefined {
    return this.manifest.bundle.variants.find((v) => v.name === dtype);
  }

  /**
   * The bytes of one file, verified.
   *
   * @throws AssetError if it cannot be fetched, HashError if its content differs from the manifest twice.
   */
  async fetch(path: string, options: FetchOptions = {}): Promise<Uint8Array<ArrayBuffer>> {
    return fetchFile(this.request(path), options);
  }

  /** What is needed to fetch a file in a worker. @throws AssetError if the manifest does not list the file. */
  request(path: string): FileRequest {
    const file = this.file(path);
    if (!file) throw new AssetError(`the bundle ${this.url} has no file "${path}"`);
    return { file, url: this.urlOf(path), bundle: this.url };
  }

  async isCached(path: string): Promise<boolean> {
    const file = this.file(path);
    return file !== undefined && (await isStored(file.sha256));
  }

  /** Remove the files of this bundle from the Cache API. Returns their number. */
  clearCache(): Promise<number> {
    return clearStored(this.url);
  }
}

/** The URL of a bundle's folder, from that URL or the URL of its manifest. */
export function bundleFolder(url: string | URL): string {
  let full: URL;
  try {
    full = new URL(url, environment().base());
  } catch {
    throw new UsageError(`"${String(url)}" is not a valid URL of a bundle`);
  }
  full.hash = "";
  full.search = "";
  if (full.pathname.endsWith("/manifest.json")) full.pathname = full.pathname.slice(0, -"manifest.json".length);
  if (!full.pathname.endsWith("/")) full.pathname += "/";
  return full.href;
}
