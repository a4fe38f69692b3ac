/** A bundle without models that run: a manifest and a server's answers. */
import { createHash } from "node:crypto";

export const FILES: Readonly<Record<string, Uint8Array<ArrayBuffer>>> = {
  "onnx/model.onnx": bytes("the fp32 model"),
  "onnx/model_quantized.onnx": bytes("the int8 model"),
};

export function bytes(text: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(new TextEncoder().encode(text));
}

export function hash(data: Uint8Array): string {
  return createHash("sha256").update(data).digest("hex");
}

/** A manifest.json as edgekit writes it, as a plain object. */
export function manifest(): Record<string, unknown> {
  const axis = { default: 224, minimum: 96, maximum: 512, multiple_of: 16, dynamic: true };
  return {
    schema_version: 2,
    name: "small",
    inputs: [
      { name: "images", dtype: "float32", shape: ["batch", 3, "height", "width"], kind: "image", low: 0, high: 1 },
      { name: "queries", dtype: "float32", shape: ["batch", 768], kind: "query", low: -1, high: 1 },
    ],
    outputs: [{ name: "relevance", dtype: "float32", shape: ["batch", 196], role: "scores" }],
    axes: { batch: { ...axis, default: 1 }, height: axis, width: axis },
    files: Object.entries(FILES).map(([path, data]) => ({ path, size: data.length, sha256: hash(data), gzip: null, brotli: null })),
    bundle: {
      variants: [
        { name: "fp32", precision: "fp32", path: "onnx/model.onnx", target: "onnx" },
        { name: "q8", precision: "int8", path: "onnx/model_quantized.onnx", target: "onnx-int8-dynamic" },
      ],
      golden: "",
    },
  };
}

/** Answers `fetch` from a table of URL -> Response makers, and counts. */
export function server(answers: Readonly<Record<string, () => Response>>): { fetch: typeof fetch; asked: string[] } {
  const asked: string[] = [];
  const answer = (input: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
    const url = input instanceof Request ? input.url : String(input);
    asked.push(`${url} ${init?.cache ?? ""}`);
    if (init?.signal?.aborted) return Promise.reject(init.signal.reason as Error);
    const found = answers[url];
    return found ? Promise.resolve(found()) : Promise.resolve(new Response("gone", { status: 404, headers: { "content-type": "text/plain" } }));
  };
  return { fetch: answer, asked };
}
