import { cpSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/**
 * The files of onnxruntime-web that a bundle needs: the plain WASM build and the JSPI build (WebGPU and WASM). The last
 * three, the asyncify build, are in a bundle only with the option `runtime=asyncify`.
 */
const RUNTIME = [
  "ort.wasm.min.mjs",
  "ort-wasm-simd-threaded.mjs",
  "ort-wasm-simd-threaded.wasm",
  "ort.jspi.min.mjs",
  "ort-wasm-simd-threaded.jspi.mjs",
  "ort-wasm-simd-threaded.jspi.wasm",
  "ort.webgpu.min.mjs",
  "ort-wasm-simd-threaded.asyncify.mjs",
  "ort-wasm-simd-threaded.asyncify.wasm",
];

/** Copies the runtime and its licence into the output, without bundling it. */
function runtime(): Plugin {
  return {
    name: "runtime",
    apply: "build",
    closeBundle() {
      mkdirSync(here("dist/ort"), { recursive: true });
      for (const name of RUNTIME) cpSync(here(`node_modules/onnxruntime-web/dist/${name}`), here(`dist/ort/${name}`));
      rmSync(here("dist/licences"), { recursive: true, force: true });
      cpSync(here("licences"), here("dist/licences"), { recursive: true });
    },
  };
}

const { devDependencies } = JSON.parse(readFileSync(here("package.json"), "utf8")) as { devDependencies: Record<string, string> };

const STABLE = new Set(["edgekit", "edgekit-map", "sw"]); // file names that other code refers to

export default defineConfig({
  base: "./",
  publicDir: "public",
  define: { RUNTIME_VERSION: JSON.stringify(devDependencies["onnxruntime-web"]) },
  build: {
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    rolldownOptions: {
      input: { index: here("index.html"), edgekit: here("src/index.ts"), "edgekit-map": here("page/edgekit_map.ts"), sw: here("sw/sw.ts") },
      preserveEntrySignatures: "strict",
      output: {
        entryFileNames: ({ name }) => (STABLE.has(name) ? "[name].js" : "assets/[name]-[hash].js"),
        chunkFileNames: "assets/[name]-[hash].js",
      },
    },
  },
  worker: { format: "es" },
  plugins: [runtime()],
  test: { include: ["tests/**/*.test.ts"], environment: "node" },
} as Parameters<typeof defineConfig>[0]);
