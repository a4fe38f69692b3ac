/** Cache: what is kept on this device for a later visit, asked for, fetched ahead and forgotten. */
import { Attempt } from "./attempt";
import { Bundle } from "./bundle";
import { UsageError } from "./errors";
import { goldenPaths } from "./golden";
import { type Climb, expectRuntime, planned } from "./ladder";
import { type LoadOptions, prepare } from "./options";
import { forgetPassed } from "./passed";
import type { Rung } from "./plan";
import { WORDS } from "./query";
import { runtimeFiles } from "./session";

/** Whether the model that `load` would take first is kept here already. */
export async function isCached(url: string | URL, options: LoadOptions = {}): Promise<boolean> {
  const { bundle, path } = await choose(url, options);
  return bundle.isCached(path);
}

/**
 * Fetch and keep what `load` would take first, without starting the runtime.
 *
 * @throws EdgekitError whose `code` says what is wrong; the signal's reason if it was aborted.
 */
export async function preload(url: string | URL, options: LoadOptions = {}): Promise<void> {
  const { bundle, path, rung, how } = await choose(url, options);
  const { progress, signal } = how;
  const beside = [...WORDS, ...goldenPaths(bundle.manifest)].filter((p) => bundle.file(p)).map((p) => bundle.at(p));
  const others = [...Object.values(runtimeFiles(rung.build, how.runtime)), ...beside];
  const wanted = bundle.wanted(path);
  const arrived = expectRuntime(bundle, rung, progress);
  progress.expect(path, wanted.file.size);
  const onprogress = (loaded: number, cached: boolean): void => {
    progress.at(path, loaded, cached);
  };
  const attempt = new Attempt();
  try {
    await attempt.ask({ op: "keep", wanted, others }, { what: "fetching the model", signal, onprogress });
    arrived();
    progress.ready();
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  } finally {
    attempt.terminate();
  }
}

/** Forget the models kept for a bundle, and which self-tests passed. Returns how many files that were. */
export async function clearCache(url: string | URL): Promise<number> {
  const bundle = await Bundle.open(url);
  forgetPassed(bundle.url);
  return bundle.clearCache();
}

async function choose(url: string | URL, options: LoadOptions): Promise<{ bundle: Bundle; path: string; rung: Rung; how: Climb }> {
  const how = await prepare(url, options);
  const bundle = await Bundle.open(url, how.signal);
  const [rung] = planned(bundle, how).rungs;
  const path = rung && bundle.variant(rung.dtype)?.path;
  if (!path) throw new UsageError("the bundle has no model for these options");
  return { bundle, path, rung, how };
}
