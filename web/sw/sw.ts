/**
 * The service worker: caches the page and the runtime for offline use, and adds the headers that threads need where the
 * host does not send them (they take effect from the second visit on).
 *
 * It does not cache models, which the library stores in the Cache API by their hash. The export replaces the placeholder
 * by the bundle's hash, so that each bundle has its own worker and cache.
 */
export {};

const worker = self as unknown as ServiceWorkerGlobalScope;
const VERSION = "EDGEKIT_BUNDLE";
// One origin may serve several bundles, each with its own cache.
const CACHE_PREFIX = `edgekit-page ${new URL(worker.registration.scope).pathname} `;
const CACHE = CACHE_PREFIX + VERSION;
const SHELL = ["./", "manifest.json", "vocabulary.json", "embeddings.bin", "golden.json", "golden.bin", "samples.json"];

interface Manifest {
  readonly files: readonly { readonly path: string }[];
}

worker.addEventListener("install", (event) => {
  event.waitUntil(install().then(() => worker.skipWaiting()));
});

worker.addEventListener("activate", (event) => {
  // Navigation preload: the page is fetched while this worker starts.
  event.waitUntil(Promise.all([removeOld(), worker.registration.navigationPreload.enable()]).then(() => worker.clients.claim()));
});

worker.addEventListener("message", (event) => {
  const { urls } = event.data as { urls?: string[] };
  if (urls) event.waitUntil(cacheAll(urls).then(() => event.source?.postMessage("cached")));
});

worker.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  const inBundle = event.request.method === "GET" && url.href.startsWith(worker.registration.scope);
  if (!inBundle || url.pathname.endsWith(".onnx") || (event.request.mode === "navigate" && !isPage(url))) return;
  event.respondWith(respond(event));
});

/** Whether a URL is that of the page, with or without index.html; other documents of the bundle are not handled. */
function isPage({ origin, pathname }: URL): boolean {
  const { scope } = worker.registration;
  return [scope, `${scope}index.html`].includes(origin + pathname);
}

async function install(): Promise<void> {
  const manifest = (await (await fetch("manifest.json", { cache: "no-cache" })).json()) as Manifest;
  const available = new Set(manifest.files.map((f) => f.path));
  const page = manifest.files.map((f) => f.path).filter((p) => /^(assets|samples)\/[^/]+$/.test(p) && !/\.(br|gz)$/.test(p));
  const files = [...SHELL.filter((p) => p === "./" || p === "manifest.json" || available.has(p)), "icon.svg", ...page];
  // Without the HTTP cache: a new worker belongs to a new bundle, and the cache may hold files of the old one.
  await cacheAll(files.map((path) => new URL(path, worker.registration.scope).href), "no-cache");
}

async function cacheAll(urls: readonly string[], mode: RequestCache = "default"): Promise<void> {
  const cache = await caches.open(CACHE);
  await Promise.all(
    urls.map(async (url) => {
      if (url.endsWith(".onnx") || (await cache.match(url, { ignoreSearch: true }))) return;
      const response = await fetch(url, { cache: mode }).catch(() => undefined);
      // Stored with its final headers, so that it is served unchanged: a new response would not use the code cache.
      if (response?.ok) await cache.put(url, isolated(response));
    }),
  );
}

async function removeOld(): Promise<void> {
  const names = await caches.keys();
  await Promise.all(names.filter((n) => n.startsWith(CACHE_PREFIX) && n !== CACHE).map((n) => caches.delete(n)));
}

/**
 * Network first for the page and the manifest, which can change, and for requests with the cache mode "reload", by which the
 * library replaces a file that does not match the manifest. Cache first for all others.
 */
async function respond(event: FetchEvent): Promise<Response> {
  const { request } = event;
  // Passed through unchanged, so that the browser's cache can store it with its compiled code.
  if (request.url.includes(".wasm")) return fetch(request).catch(() => cachedOrError(request));
  const changing = request.mode === "navigate" || request.url.endsWith("/manifest.json");
  const fresh = changing || request.cache === "reload";
  const cache = await caches.open(CACHE);
  const key = request.mode === "navigate" ? worker.registration.scope : request;
  if (!fresh) {
    const cached = await cache.match(key, { ignoreSearch: true });
    if (cached) return isolated(cached);
  }
  try {
    const response = isolated(((await event.preloadResponse) as Response | undefined) ?? (await fetch(request)));
    if (response.ok && fresh) event.waitUntil(cache.put(key, response.clone()));
    return response;
  } catch (error) {
    const cached = await cache.match(key, { ignoreSearch: true });
    if (cached) return isolated(cached);
    throw error;
  }
}

async function cachedOrError(request: Request): Promise<Response> {
  const cached = await (await caches.open(CACHE)).match(request, { ignoreSearch: true });
  return cached ?? Response.error();
}

function isolated(response: Response): Response {
  if (response.type === "opaque" || response.headers.has("cross-origin-embedder-policy")) return response;
  const headers = new Headers(response.headers);
  headers.set("cross-origin-opener-policy", "same-origin");
  headers.set("cross-origin-embedder-policy", "require-corp");
  headers.set("cross-origin-resource-policy", "same-origin");
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}
