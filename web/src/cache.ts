/** Cache: the models stored on this device for later visits: whether they are there, fetched in advance, and removed. */
import { Bundle } from "./bundle.js";
import type { Candidate } from "./candidates.js";
import type { OnBytes } from "./download.js";
import { environment } from "./environment.js";
import { UsageError } from "./errors.js";
import { bundleCandidates, expectRuntime } from "./fallback_chain.js";
import { goldenPaths } from "./golden.js";
import { type LoadOptions, type ResolvedOptions, resolveOptions } from "./options.js";
import { VOCABULARY_FILES } from "./query_encoder.js";
import { forgetDevice } from "./device_choice.js";
import { clearSelfTests } from "./selftest_cache.js";
import { runtimeFiles } from "./session.js";

/** Whether the model that `load` would try first is stored on this device. */
export async function isCached(url: string | URL, options: LoadOptions = {}): Promise<boolean> {
  const { bundle, path } = await firstCandidate(url, options);
  return bundle.isCached(path);
}

/**
 * Fetch and store what `load` would try first, without starting the runtime.
 *
 * @throws EdgekitError whose `code` names the kind of error; the signal's reason if it was aborted.
 */
export async function preload(url: string | URL, options: LoadOptions = {}): Promise<void> {
  const { bundle, path, candidate, resolved } = await firstCandidate(url, options);
  const { progress, signal, runtime } = resolved;
  const extraFiles = [...VOCABULARY_FILES, ...goldenPaths(bundle.manifest)].filter((p) => bundle.file(p)).map((p) => bundle.urlOf(p));
  const otherUrls = [...Object.values(runtimeFiles(candidate.build, runtime)), ...extraFiles];
  const model = bundle.request(path);
  const runtimeArrived = expectRuntime(bundle, candidate, progress);
  progress.addFile(model.file);
  const onprogress: OnBytes = (loaded, cached, sent) => {
    progress.update(path, loaded, cached, sent);
  };
  const client = environment().openClient();
  try {
    await client.request({ op: "preload", model, otherUrls }, { what: "fetching the model", signal, onprogress });
    runtimeArrived();
    progress.finish();
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  } finally {
    client.terminate();
  }
}

/** Remove the stored models and self-test results of a bundle. Returns the number of files removed. */
export async function clearCache(source: string | URL | Bundle): Promise<number> {
  const bundle = source instanceof Bundle ? source : await Bundle.open(source);
  clearSelfTests(bundle.url);
  forgetDevice(bundle.url);
  return bundle.clearCache();
}

interface FirstCandidate {
  readonly bundle: Bundle;
  readonly candidate: Candidate;
  /** Of its model, in the bundle. */
  readonly path: string;
  readonly resolved: ResolvedOptions;
}

async function firstCandidate(url: string | URL, options: LoadOptions): Promise<FirstCandidate> {
  const resolved = await resolveOptions(url, options);
  const bundle = await Bundle.open(url, resolved.signal);
  const [candidate] = bundleCandidates(bundle, resolved).candidates;
  const path = candidate && bundle.variant(candidate.dtype)?.path;
  if (!path) throw new UsageError("the bundle has no model for these options");
  return { bundle, candidate, path, resolved };
}
