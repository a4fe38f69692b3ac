/** Offline: registers the service worker, and tells it what this page used, so that the next visit needs no network. */
import { element } from "./element";

export async function keepOffline(used: readonly string[]): Promise<void> {
  const workers = (navigator as { serviceWorker?: ServiceWorkerContainer }).serviceWorker;
  if (!workers) return;
  try {
    await workers.register("./sw.js", { scope: "./" });
    const registration = await workers.ready;
    registration.active?.postMessage({ keep: used });
  } catch {
    return; // a private window, or a host that serves sw.js wrongly: the page works without
  }
  workers.addEventListener("message", ({ data }: MessageEvent<unknown>) => {
    if (data === "kept") element("#offline", HTMLElement).textContent = "It works offline now.";
  });
}

/** What this page and its worker loaded from its own folder. */
export function loaded(base: string, runtime: readonly string[]): string[] {
  const seen = performance.getEntriesByType("resource").map((entry) => entry.name);
  return [...new Set([...seen, ...runtime])].filter((url) => url.startsWith(base));
}
