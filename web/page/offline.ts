/** Offline: registers the service worker and sends it the URLs that this page uses, so that it can cache them. */
import { element } from "./dom";

export async function keepOffline(urls: readonly string[]): Promise<void> {
  const workers = (navigator as { serviceWorker?: ServiceWorkerContainer }).serviceWorker;
  if (!workers) return;
  try {
    await workers.register("./sw.js", { scope: "./" });
    const registration = await workers.ready;
    registration.active?.postMessage({ urls });
  } catch {
    return; // in a private window, or without sw.js on the host, the page works online only
  }
  workers.addEventListener("message", ({ data }: MessageEvent<unknown>) => {
    if (data === "cached") element("#offline", HTMLElement).textContent = "The page now works offline.";
  });
}

/** The URLs that this page and its worker loaded from the bundle. */
export function loadedUrls(base: string, runtime: readonly string[]): string[] {
  const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
  return [...new Set([...loaded, ...runtime])].filter((url) => url.startsWith(base));
}
