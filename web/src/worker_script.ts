/** WorkerScript: opens the library's worker, and where the library came from another origin than the page, from a blob. */
import { PolicyError, firstLine } from "./errors.js";
import { address, startOwn } from "./own_worker.js";

const REVOKE_AFTER = 60_000; // ms; the script is read when the worker starts

/** @throws PolicyError if the page's content security policy forbids the worker. */
export function openWorker(): Worker {
  if (!isForeign()) return startOwn();
  // A worker may only be started from its own origin, so a blob of the page's origin imports the script.
  const blob = new Blob([`import ${JSON.stringify(address.href)};`], { type: "text/javascript" });
  const local = URL.createObjectURL(blob);
  setTimeout(() => { URL.revokeObjectURL(local); }, REVOKE_AFTER);
  try {
    return new Worker(local, { type: "module", name: "edgekit" });
  } catch (error) {
    throw forbidden(firstLine(error));
  }
}

/** The error of a worker whose script, from another origin, did not load: mostly because of the page's policy. */
export function refusedScript(message: string | undefined): PolicyError | undefined {
  return !message && isForeign() ? forbidden("its script did not load") : undefined;
}

/** Whether the script lies at another http origin; a bundler may leave the address of a file, and serves the script itself. */
function isForeign(): boolean {
  return address.protocol.startsWith("http") && address.origin !== globalThis.location.origin;
}

function forbidden(reason: string): PolicyError {
  const { origin } = address;
  return new PolicyError(
    `the page's content security policy forbids the worker from ${origin} (${reason}): allow "worker-src blob: ${origin}" and "script-src ${origin} 'wasm-unsafe-eval'", or serve the library from the page's own origin`,
  );
}
