/**
 * Bundle: the folder that `edgekit export --target web` wrote, seen through its manifest.
 *
 * It fetches files by the manifest's names, and hands nothing out whose sha256 is not the manifest's.
 */
import { type Fetching, type Wanted, fetchFile, get } from "./download";
import { AssetError, ManifestError, UsageError, sentence } from "./errors";
import { type BundleFile, type Dtype, type Manifest, type Variant, parseManifest } from "./manifest";
import { clear, isStored } from "./store";

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
    return fetchFile(this.wanted(path), how);
  }

  /** @throws AssetError if the manifest does not name the file. */
  wanted(path: string): Wanted {
    const file = this.file(path);
    if (!file) throw new AssetError(`the bundle ${this.url} has no file "${path}"`);
    return { file, url: this.at(path), bundle: this.url };
  }

  async isCached(path: string): Promise<boolean> {
    const file = this.file(path);
    return file !== undefined && (await isStored(file.sha256));
  }

  /** Forget what this bundle keeps in the Cache API. Returns the number of files. */
  clearCache(): Promise<number> {
    return clear(this.url);
  }
}

/** The folder of a bundle, from its own URL or that of its manifest. */
export function folder(url: string | URL): string {
  let full: URL;
  try {
    full = new URL(url, globalThis.location.href);
  } catch {
    throw new UsageError(`"${String(url)}" is no address of a bundle`);
  }
  full.hash = "";
  full.search = "";
  if (full.pathname.endsWith("/manifest.json")) full.pathname = full.pathname.slice(0, -"manifest.json".length);
  if (!full.pathname.endsWith("/")) full.pathname += "/";
  return full.href;
}
