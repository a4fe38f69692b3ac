import { expect, test } from "vitest";
import { ManifestError } from "../src/errors";
import { parseManifest } from "../src/manifest";
import { manifest } from "./bundle";

test("a manifest as edgekit writes it is read", () => {
  const read = parseManifest(manifest(), "u");
  expect(read.variants.map((v) => v.name)).toEqual(["fp32", "q8"]);
  expect(read.inputs[0]?.kind).toBe("image");
  expect(read.axes.height?.default).toBe(224);
});

test.each([
  ["another schema", { schema_version: 2 }, "schema version 2"],
  ["no files", { files: undefined }, "files must be a list"],
  ["a path that climbs out", { files: [{ path: "../x", size: 1, sha256: "0".repeat(64) }] }, 'not "../x"'],
  ["an absolute path", { files: [{ path: "/x", size: 1, sha256: "0".repeat(64) }] }, "relative path inside the bundle"],
  ["a hash that is none", { files: [{ path: "x", size: 1, sha256: "zz" }] }, "64 hexadecimal digits"],
  ["a size that is none", { files: [{ path: "x", size: -1, sha256: "0".repeat(64) }] }, "size in bytes"],
  ["a variant without a file", { files: [] }, "the path of a file in the bundle"],
  ["no variants", { variants: [] }, "at least one of fp32"],
])("%s is refused, with the field named", (_, change, sentence) => {
  expect(() => parseManifest({ ...manifest(), ...change }, "http://x/manifest.json")).toThrow(ManifestError);
  expect(() => parseManifest({ ...manifest(), ...change }, "http://x/manifest.json")).toThrow(sentence);
});

test.each([null, [], "text", 3])("%j is no manifest", (value) => {
  expect(() => parseManifest(value, "u")).toThrow(ManifestError);
});
