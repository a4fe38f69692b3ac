/**
 * CacheStorage: verified files stored in the Cache API under their sha256, so that the next visit need not download them.
 *
 * Where there is no cache (plain http, private windows, a full disk), every file counts as not stored.
 */
const CACHE = "edgekit-files-v1";
const BUNDLE = "x-edgekit-bundle";
const PATH = "x-edgekit-path";

/** The bytes with a hash, or undefined. */
export async function fetchStored(sha256: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const found = await withCache((cache) => cache.match(cacheKey(sha256)));
  return found && new Uint8Array(await found.arrayBuffer());
}

export async function isStored(sha256: string): Promise<boolean> {
  return (await withCache((cache) => cache.match(cacheKey(sha256)))) !== undefined;
}

/** Store bytes, and remove what the same bundle stored before under the same path. The bytes are copied at once. */
export function store(sha256: string, bytes: Uint8Array<ArrayBuffer>, bundle: string, path: string): Promise<void> {
  // A blob is passed by reference; an array would be read through the page's thread.
  const response = new Response(new Blob([bytes]), {
    headers: { "content-type": "application/octet-stream", [BUNDLE]: bundle, [PATH]: encodeURI(path) },
  });
  return withCache(async (cache) => {
    await cache.put(cacheKey(sha256), response);
    await removeMatching(cache, bundle, (storedPath, hash) => storedPath === encodeURI(path) && hash !== sha256);
  }).then(() => undefined);
}

/** Remove one entry (it is damaged). */
export async function removeStored(sha256: string): Promise<void> {
  await withCache((cache) => cache.delete(cacheKey(sha256)));
}

/** Remove all files of a bundle. Returns their number. */
export async function clearStored(bundle: string): Promise<number> {
  return (await withCache((cache) => removeMatching(cache, bundle, () => true))) ?? 0;
}

async function removeMatching(cache: Cache, bundle: string, matches: (path: string, sha256: string) => boolean): Promise<number> {
  let count = 0;
  for (const request of await cache.keys()) {
    const response = await cache.match(request);
    const sha256 = request.url.slice(request.url.lastIndexOf("/") + 1);
    if (response?.headers.get(BUNDLE) !== bundle || !matches(response.headers.get(PATH) ?? "", sha256)) continue;
    if (await cache.delete(request)) count++;
  }
  return count;
}

function cacheKey(sha256: string): string {
  return new URL(`/.edgekit/${sha256}`, globalThis.location.href).href;
}

async function withCache<T>(use: (cache: Cache) => Promise<T>): Promise<T | undefined> {
  if (!("caches" in globalThis)) return undefined;
  try {
    return await use(await caches.open(CACHE));
  } catch {
    return undefined; // SecurityError in private windows, QuotaExceededError on a full disk: the file is downloaded instead
  }
}
