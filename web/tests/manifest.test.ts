import { expect, test } from "vitest";
import { ManifestError } from "../src/errors";
import { defaultDtypes, parseManifest, verifiedDtypes } from "../src/manifest";
import { manifest } from "./bundle";

test("what was not verified is not chosen unasked", () => {
  const read = parseManifest(manifest(), "u");
  const of = (...verdicts: (readonly [string, string])[]): readonly string[] =>
    defaultDtypes({ ...read, verdicts: verdicts.map(([place, status]) => ({ place, status, reason: "" })) });
  expect(of()).toEqual(["fp32"]);
  expect(of(["wasm-fp32", "not verified here"], ["wasm-q8", "not verified here"])).toEqual(["fp32"]);
  expect(of(["wasm-fp32", "verified"], ["wasm-q8", "not verified here"])).toEqual(["fp32"]);
  expect(of(["wasm-fp32", "verified"], ["webgpu-fp32", "not verified here"], ["wasm-q8", "verified"])).toEqual(["fp32", "q8"]);
  expect(verifiedDtypes({ ...read, verdicts: [] })).toEqual([]);
});

test("a manifest as edgekit writes it is read", () => {
  const read = parseManifest(manifest(), "u");
  expect(read.bundle.variants.map((v) => v.name)).toEqual(["fp32", "q8"]);
  expect(read.inputs[0]?.kind).toBe("image");
  expect(read.axes.height?.default).toBe(224);
});

test.each([
  ["a name that is code", { name: "P{init{}};object/**/Q" }, "name must be a name of letters"],
  ["an input whose name is code", { inputs: [{ name: "a</script>", dtype: "float32" }] }, "inputs[0].name must be a name"],
  ["an axis whose name is code", { axes: { "a b": { default: 1, minimum: 1, maximum: 1, multiple_of: 1 } } }, "must be a name"],
  ["a size that is code", { outputs: [{ name: "y", dtype: "float32", shape: ["a\nb"] }] }, "outputs[0].shape[0] must be a name"],
  ["another schema", { schema_version: 1 }, "schema version 1"],
  ["no files", { files: undefined }, "files must be a list"],
  ["a path that climbs out", { files: [{ path: "../x", size: 1, sha256: "0".repeat(64) }] }, 'not "../x"'],
  ["an absolute path", { files: [{ path: "/x", size: 1, sha256: "0".repeat(64) }] }, "relative path inside the bundle"],
  ["a hash that is none", { files: [{ path: "x", size: 1, sha256: "zz" }] }, "64 hexadecimal digits"],
  ["a size that is none", { files: [{ path: "x", size: -1, sha256: "0".repeat(64) }] }, "size in bytes"],
  ["a variant without a file", { files: [] }, "the path of a file in the bundle"],
  ["no variants", { bundle: { variants: [] } }, "at least one of fp32"],
])("%s is refused, with the field named", (_, change, sentence) => {
  expect(() => parseManifest({ ...manifest(), ...change }, "http://x/manifest.json")).toThrow(ManifestError);
  expect(() => parseManifest({ ...manifest(), ...change }, "http://x/manifest.json")).toThrow(sentence);
});

test.each([
  " //evil.example/x",
  "//evil.example/x",
  "\t//evil.example/x",
  "%2e%2e/x",
  "a/%2E%2e/%2e./x",
  "a/../x",
  "./x",
  "a//x",
  "a/",
  "x?y",
  "x#y",
  "http:x",
  "a\\..\\x",
  "a\n/x",
  "",
])("the path %j is refused", (path) => {
  const files = [...(manifest().files as object[]), { path, size: 1, sha256: "0".repeat(64) }];
  expect(() => parseManifest({ ...manifest(), files }, "http://x/manifest.json")).toThrow("relative path inside the bundle");
});

test("names that edgekit writes stay in the bundle's folder", () => {
  for (const path of ["model.fp32.onnx", "ort/ort-wasm-simd-threaded.jsep.wasm", "assets/page-B1_x.js", "a@b/c+d"]) {
    const files = [...(manifest().files as object[]), { path, size: 1, sha256: "0".repeat(64) }];
    expect(parseManifest({ ...manifest(), files }, "u").files.at(-1)?.path).toBe(path);
    expect(new URL(path, "http://x/y/").href).toBe(`http://x/y/${path}`);
  }
});

test.each([
  { bundle: { variants: [{ name: "fp32", precision: "fp32", path: "x\n", target: "onnx" }] } },
  { axes: { "x\n": 1 } },
])("what is told of a manifest with line breaks has none", (change) => {
  expect(() => parseManifest({ ...manifest(), ...change }, "u")).toThrow(/^the manifest u is invalid: .* must be .*$/);
});

test.each([null, [], "text", 3])("%j is no manifest", (value) => {
  expect(() => parseManifest(value, "u")).toThrow(ManifestError);
});
