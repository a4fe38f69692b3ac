import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Bundle, bundleFolder } from "../src/bundle";
import { AssetError, HashError, ManifestError } from "../src/errors";
import { FILES, bytes, manifest, server } from "./bundle";

const BASE = "http://host/models/";
const MODEL = `${BASE}onnx/model.onnx`;
const json = (value: unknown): Response => new Response(JSON.stringify(value), { headers: { "content-type": "application/json" } });
const good = { [`${BASE}manifest.json`]: () => json(manifest()) };

beforeEach(() => {
  vi.stubGlobal("location", { href: "http://host/page?q=1#x" });
});
afterEach(() => {
  vi.unstubAllGlobals();
});

test.each([
  ["./models", BASE],
  ["./models/", BASE],
  ["models/manifest.json", BASE],
  ["http://host/models/?a=1#b", BASE],
])("the folder of %s", (url, expected) => {
  expect(bundleFolder(url)).toBe(expected);
});

test("a file is fetched, counted by the manifest's size and verified", async () => {
  const { fetch } = server({ ...good, [MODEL]: () => new Response(FILES["onnx/model.onnx"]) });
  vi.stubGlobal("fetch", fetch);
  const bundle = await Bundle.open("models");
  const seen: number[] = [];
  const data = await bundle.fetch("onnx/model.onnx", { onprogress: (loaded) => seen.push(loaded) });
  expect(new TextDecoder().decode(data)).toBe("the fp32 model");
  expect(seen.at(-1)).toBe(14);
});

test("a stale copy in the HTTP cache is fetched again, once", async () => {
  let calls = 0;
  const { fetch, asked } = server({ ...good, [MODEL]: () => new Response(calls++ === 0 ? "an older model" : FILES["onnx/model.onnx"]) });
  vi.stubGlobal("fetch", fetch);
  const bundle = await Bundle.open("models");
  await bundle.fetch("onnx/model.onnx");
  expect(asked.slice(1)).toEqual([`${MODEL} default`, `${MODEL} reload`]);
});

test("another content is refused, with both hashes", async () => {
  vi.stubGlobal("fetch", server({ ...good, [MODEL]: () => new Response("a wicked model") }).fetch);
  const bundle = await Bundle.open("models");
  const error = await bundle.fetch("onnx/model.onnx").catch((e: unknown) => e);
  expect(error).toBeInstanceOf(HashError);
  expect(String(error)).toMatch(/onnx\/model\.onnx does not match the manifest: expected 14 bytes .*, received 14 bytes with sha256/);
});

test("an endless body is stopped at the manifest's size", async () => {
  vi.stubGlobal("fetch", server({ ...good, [MODEL]: () => new Response(new Uint8Array(1000)) }).fetch);
  const bundle = await Bundle.open("models");
  await expect(bundle.fetch("onnx/model.onnx")).rejects.toThrow("larger than the 14 bytes");
});

test("a page instead of a file is named as such", async () => {
  const html = (): Response => new Response("<!doctype html>", { headers: { "content-type": "text/html" } });
  vi.stubGlobal("fetch", server({ ...good, [MODEL]: html, [`${BASE}other/manifest.json`]: html }).fetch);
  const bundle = await Bundle.open("models");
  await expect(bundle.fetch("onnx/model.onnx")).rejects.toThrow("answered with an HTML page instead");
  await expect(Bundle.open("models/other")).rejects.toThrow(AssetError);
});

test("what is missing is named with the server's answer", async () => {
  vi.stubGlobal("fetch", server(good).fetch);
  const bundle = await Bundle.open("models");
  await expect(bundle.fetch("onnx/model.onnx")).rejects.toThrow(`${MODEL} cannot be fetched: the server answered 404`);
  await expect(bundle.fetch("nothing")).rejects.toThrow('has no file "nothing"');
});

test("a broken connection is named with how far it came", async () => {
  const broken = (): Response =>
    new Response(
      new ReadableStream({
        start(control) {
          control.enqueue(bytes("the"));
        },
        pull(control) {
          control.error(new Error("reset"));
        },
      }),
    );
  vi.stubGlobal("fetch", server({ ...good, [MODEL]: broken }).fetch);
  const bundle = await Bundle.open("models");
  await expect(bundle.fetch("onnx/model.onnx")).rejects.toThrow("stopped after 3 of 14 bytes");
});

test("a manifest that is no JSON is refused", async () => {
  vi.stubGlobal("fetch", server({ [`${BASE}manifest.json`]: () => new Response("{", { headers: { "content-type": "application/json" } }) }).fetch);
  await expect(Bundle.open("models")).rejects.toThrow(ManifestError);
});

test("an aborted fetch rejects with the signal's reason", async () => {
  vi.stubGlobal("fetch", server(good).fetch);
  const bundle = await Bundle.open("models");
  const reason = new Error("enough");
  await expect(bundle.fetch("onnx/model.onnx", { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
});
