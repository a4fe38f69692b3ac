/**
 * Builds the npm package into lib/: index.js for browsers, node.js for Node and Deno, what both share, worker.js, and types.
 *
 * The worker is named by a literal `new Worker(new URL(...))`, which every bundler follows. Runtimes and models are not in it.
 */
import { execFileSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { rolldown } from "rolldown";

const { devDependencies } = JSON.parse(readFileSync("package.json", "utf8"));
const OWN_WORKER = `export const address = new URL(["./worker", "js"].join("."), import.meta.url); // not for bundlers
export const startOwn = () => new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: "edgekit" });`;
const ownWorker = {
  name: "own-worker",
  load: (id) => (id.endsWith("/own_worker.ts") ? { code: OWN_WORKER, moduleType: "js" } : undefined),
};

rmSync("lib", { recursive: true, force: true });
for (const entries of [["index", "node"], ["worker"]]) {
  const bundle = await rolldown({
    input: Object.fromEntries(entries.map((entry) => [entry, `src/${entry}.ts`])),
    platform: "browser",
    external: /^node:/,
    plugins: [ownWorker],
    transform: { define: { RUNTIME_VERSION: JSON.stringify(devDependencies["onnxruntime-web"]) }, target: "es2022" },
  });
  await bundle.write({ dir: "lib", format: "esm", entryFileNames: "[name].js", chunkFileNames: "shared.js", minify: { compress: true, mangle: false, codegen: { removeWhitespace: false } } });
}
execFileSync("npx", ["tsc", "-p", "tsconfig.types.json", "--outDir", "lib/types"], { stdio: "inherit" });
