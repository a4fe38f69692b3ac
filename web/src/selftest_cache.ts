/**
 * SelfTestCache: remembers which self-tests on WASM passed, so that the next visit can answer first and test afterwards.
 *
 * An entry is valid only for the same model, golden vectors, runtime, thread count and browser. Where there is no storage
 * (private windows) nothing is remembered.
 */
import type { Bundle } from "./bundle.js";
import type { Candidate } from "./candidates.js";
import { type SelfTestReport, goldenPaths } from "./golden.js";
import type { Started } from "./protocol.js";

const PREFIX = "edgekit-selftest-v1";

/** The stored result of one self-test: a model on WASM. */
export class SelfTestCache {
  private readonly name: string;
  private readonly key: string;

  constructor(bundle: Bundle, candidate: Candidate, runtime: Started) {
    const files = [bundle.variant(candidate.dtype)?.path ?? "", ...goldenPaths(bundle.manifest)].map((path) => bundle.file(path)?.sha256);
    this.name = `${PREFIX} ${bundle.url} ${candidate.dtype}`;
    this.key = JSON.stringify([files, candidate.build, candidate.threads, runtime.version, (globalThis.navigator as Navigator | undefined)?.userAgent]);
  }

  /** The report of the visit in which the test passed, or undefined. */
  read(): SelfTestReport | undefined {
    return withStorage((storage) => {
      const entry = JSON.parse(storage.getItem(this.name) ?? "{}") as { key?: string; report?: SelfTestReport };
      return entry.key === this.key ? entry.report : undefined;
    });
  }

  write(report: SelfTestReport): void {
    withStorage((storage) => {
      storage.setItem(this.name, JSON.stringify({ key: this.key, report }));
    });
  }

  clear(): void {
    withStorage((storage) => {
      storage.removeItem(this.name);
    });
  }
}

/** Remove the stored results of a bundle. */
export function clearSelfTests(bundle: string): void {
  withStorage((storage) => {
    for (const name of Object.keys(storage)) if (name.startsWith(`${PREFIX} ${bundle} `)) storage.removeItem(name);
  });
}

/** Use the page's storage; undefined where there is none, or an entry is not ours. */
export function withStorage<T>(use: (storage: Storage) => T): T | undefined {
  try {
    return use(localStorage);
  } catch {
    return undefined; // SecurityError in private windows, a full storage, or an entry that is not ours
  }
}
