/**
 * Passed: which self-tests on WASM passed here, so that the next visit answers before it tests again.
 *
 * What is remembered holds for the very same model, golden vectors, runtime, threads and browser only. Every call may
 * find no storage (private windows); then nothing is remembered.
 */
import type { Bundle } from "./bundle";
import { type SelfTestReport, goldenPaths } from "./golden";
import type { Rung } from "./plan";
import type { Started } from "./wire";

const PREFIX = "edgekit-passed-v1";

/** One self-test: a model on WASM. */
export class Passed {
  private readonly name: string;
  private readonly key: string;

  constructor(bundle: Bundle, rung: Rung, started: Started) {
    const files = [bundle.variant(rung.dtype)?.path ?? "", ...goldenPaths(bundle.manifest)].map((path) => bundle.file(path)?.sha256);
    this.name = `${PREFIX} ${bundle.url} ${rung.dtype}`;
    this.key = JSON.stringify([files, rung.build, rung.threads, started.version, navigator.userAgent]);
  }

  /** The report of the time when it passed, or undefined. */
  recall(): SelfTestReport | undefined {
    return guarded((storage) => {
      const kept = JSON.parse(storage.getItem(this.name) ?? "{}") as { key?: string; report?: SelfTestReport };
      return kept.key === this.key ? kept.report : undefined;
    });
  }

  remember(report: SelfTestReport): void {
    guarded((storage) => {
      storage.setItem(this.name, JSON.stringify({ key: this.key, report }));
    });
  }

  forget(): void {
    guarded((storage) => {
      storage.removeItem(this.name);
    });
  }
}

/** Forget what passed of a bundle. */
export function forgetPassed(bundle: string): void {
  guarded((storage) => {
    for (const name of Object.keys(storage)) if (name.startsWith(`${PREFIX} ${bundle} `)) storage.removeItem(name);
  });
}

function guarded<T>(use: (storage: Storage) => T): T | undefined {
  try {
    return use(localStorage);
  } catch {
    return undefined; // SecurityError in private windows, a full storage, or somebody else's text
  }
}
