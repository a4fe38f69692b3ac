/**
 * Store: verified files kept in the Cache API under their sha256, so that the next visit needs no network for them.
 *
 * Every call may find no cache (plain http, private windows, a full disk); then the answer is "not there".
 */
const CACHE = "edgekit-files-v1";
const BUNDLE = "x-edgekit-bundle";
const PATH = "x-edgekit-path";

/** The bytes under a hash, or undefined. */
export async function fetchStored(sha256: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const found = await guarded((cache) => cache.match(key(sha256)));
  return found && new Uint8Array(await found.arrayBuffer());
}

export async function isStored(sha256: string): Promise<boolean> {
  return (await guarded((cache) => cache.match(key(sha256)))) !== undefined;
}

/** Keep bytes, and forget what the same bundle kept before under the same path. Returns at once with the copy made. */
export function store(sha256: string, bytes: Uint8Array<ArrayBuffer>, bundle: string, path: string): Promise<void> {
  // A blob is handed over whole; an array would be read through the page's thread.
  const response = new Response(new Blob([bytes]), {
    headers: { "content-type": "application/octet-stream", [BUNDLE]: bundle, [PATH]: encodeURI(path) },
  });
  return guarded(async (cache) => {
    await cache.put(key(sha256), response);
    await forget(cache, bundle, (at, hash) => at === encodeURI(path) && hash !== sha256);
  }).then(() => undefined);
}

/** Forget one entry (it turned out damaged). */
export async function drop(sha256: string): Promise<void> {
  await guarded((cache) => cache.delete(key(sha256)));
}

/** Forget everything that a bundle kept. Returns how many files that were. */
export async function clear(bundle: string): Promise<number> {
  return (await guarded((cache) => forget(cache, bundle, () => true))) ?? 0;
}

async function forget(cache: Cache, bundle: string, chosen: (path: string, sha256: string) => boolean): Promise<number> {
  let count = 0;
  for (const request of await cache.keys()) {
    const response = await cache.match(request);
    const sha256 = request.url.slice(request.url.lastIndexOf("/") + 1);
    if (response?.headers.get(BUNDLE) !== bundle || !chosen(response.headers.get(PATH) ?? "", sha256)) continue;
    if (await cache.delete(request)) count++;
  }
  return count;
}

function key(sha256: string): string {
  return new URL(`/.edgekit/${sha256}`, globalThis.location.href).href;
}

async function guarded<T>(use: (cache: Cache) => Promise<T>): Promise<T | undefined> {
  if (!("caches" in globalThis)) return undefined;
  try {
    return await use(await caches.open(CACHE));
  } catch {
    return undefined; // SecurityError in private windows, QuotaExceededError on a full disk: the network is still there
  }
}
