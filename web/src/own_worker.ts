/** OwnWorker: where the worker's script lies, and how it is started from there. The npm package has another one (build_package.mjs). */
import url from "./worker?worker&url";

export const address = new URL(url, import.meta.url);

export function startOwn(): Worker {
  return new Worker(address, { type: "module", name: "edgekit" });
}
