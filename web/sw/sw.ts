/**
 * The service worker: keeps the page and the runtime for offline use, and adds the headers that threads need where the
 * host cannot send them (they count from the second visit on).
 *
 * Models are not its business: the library keeps them in the Cache API by their hash. The export writes the bundle's hash
 * over the placeholder, so that a new bundle is a new worker with a new cache.
 */
export {};

const worker = self as unknown as ServiceWorkerGlobalScope;
const VERSION = "EDGEKIT_BUNDLE";
// One origin may hold several bundles, each with its own copy.
const OURS = `edgekit-page ${new URL(worker.registration.scope).pathname} `;
const CACHE = OURS + VERSION;
const SHELL = ["./", "manifest.json", "vocabulary.json", "embeddings.bin", "golden.json", "golden.bin", "samples.json"];

interface Manifest {
  readonly files: readonly { readonly path: string }[];
}

worker.addEventListener("install", (event) => {
  event.waitUntil(install().then(() => worker.skipWaiting()));
});

worker.addEventListener("activate", (event) => {
  // The page is asked for while this worker starts.
  event.waitUntil(Promise.all([removeOld(), worker.registration.navigationPreload.enable()]).then(() => worker.clients.claim()));
});

worker.addEventListener("message", (event) => {
  const { keep } = event.data as { keep?: string[] };
  if (keep) event.waitUntil(keepAll(keep).then(() => event.source?.postMessage("kept")));
});

worker.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  const ours = event.request.method === "GET" && url.href.startsWith(worker.registration.scope);
  if (!ours || url.pathname.endsWith(".onnx") || (event.request.mode === "navigate" && !isPage(url))) return;
  event.respondWith(answer(event));
});

/** Whether it is the page itself, under one of its two names; other documents beside it are none of our business. */
function isPage({ origin, pathname }: URL): boolean {
  const { scope } = worker.registration;
  return [scope, `${scope}index.html`].includes(origin + pathname);
}

async function install(): Promise<void> {
  const manifest = (await (await fetch("manifest.json", { cache: "no-cache" })).json()) as Manifest;
  const there = new Set(manifest.files.map((f) => f.path));
  const page = manifest.files.map((f) => f.path).filter((p) => /^(assets|samples)\/[^/]+$/.test(p) && !/\.(br|gz)$/.test(p));
  const files = [...SHELL.filter((p) => p === "./" || p === "manifest.json" || there.has(p)), "icon.svg", ...page];
  // Asked anew: a new worker belongs to a new bundle, and the HTTP cache may hold files of the old one.
  await keepAll(files.map((path) => new URL(path, worker.registration.scope).href), "no-cache");
}

async function keepAll(urls: readonly string[], mode: RequestCache = "default"): Promise<void> {
  const cache = await caches.open(CACHE);
  await Promise.all(
    urls.map(async (url) => {
      if (url.endsWith(".onnx") || (await cache.match(url, { ignoreSearch: true }))) return;
      const response = await fetch(url, { cache: mode }).catch(() => undefined);
      // Kept with its headers, so that it goes out as it is: a response made anew has no part in the code cache.
      if (response?.ok) await cache.put(url, isolated(response));
    }),
  );
}

async function removeOld(): Promise<void> {
  const names = await caches.keys();
  await Promise.all(names.filter((n) => n.startsWith(OURS) && n !== CACHE).map((n) => caches.delete(n)));
}

/**
 * The network first for what can change (the page and the manifest) and for what the library asks for again because the
 * kept file is not the manifest's; the cache first for the rest.
 */
async function answer(event: FetchEvent): Promise<Response> {
  const { request } = event;
  // Passed through untouched, so that the browser's own cache has it with the code that was compiled from it.
  if (request.url.includes(".wasm")) return fetch(request).catch(() => keptOr(request));
  const changing = request.mode === "navigate" || request.url.endsWith("/manifest.json");
  const fresh = changing || request.cache === "reload";
  const cache = await caches.open(CACHE);
  const key = request.mode === "navigate" ? worker.registration.scope : request;
  if (!fresh) {
    const kept = await cache.match(key, { ignoreSearch: true });
    if (kept) return isolated(kept);
  }
  try {
    const response = isolated(((await event.preloadResponse) as Response | undefined) ?? (await fetch(request)));
    if (response.ok && fresh) event.waitUntil(cache.put(key, response.clone()));
    return response;
  } catch (error) {
    const kept = await cache.match(key, { ignoreSearch: true });
    if (kept) return isolated(kept);
    throw error;
  }
}

async function keptOr(request: Request): Promise<Response> {
  const kept = await (await caches.open(CACHE)).match(request, { ignoreSearch: true });
  return kept ?? Response.error();
}

function isolated(response: Response): Response {
  if (response.type === "opaque" || response.headers.has("cross-origin-embedder-policy")) return response;
  const headers = new Headers(response.headers);
  headers.set("cross-origin-opener-policy", "same-origin");
  headers.set("cross-origin-embedder-policy", "require-corp");
  headers.set("cross-origin-resource-policy", "same-origin");
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}
