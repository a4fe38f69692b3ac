/** Worker: one backend, which the page speaks to by messages. Memory is freed by terminating the worker: WebAssembly's never shrinks. */
import { Backend } from "./backend.js";
import { serializeError } from "./errors.js";
import type { Responses, WorkerReply, WorkerRequest } from "./protocol.js";
import { startInBrowser } from "./session.js";
import type { RawTensor } from "./tensor.js";

const backend = new Backend(startInBrowser, {
  onprogress: (id, loaded, fromCache, sent) => { post({ id, loaded, fromCache, sent }); },
  onlost: (reason) => { post({ deviceLost: reason }); },
});

onmessage = ({ data }: MessageEvent<WorkerRequest>) => {
  backend.request(data, data.id).then(
    (response) => { post({ id: data.id, response }, transferList(response)); },
    (error: unknown) => { post({ id: data.id, error: serializeError(error) }); },
  );
};

function post(reply: WorkerReply, transfer: Transferable[] = []): void {
  postMessage(reply, { transfer });
}

function transferList(response: Responses[keyof Responses]): Transferable[] {
  if (response === null || typeof response !== "object") return [];
  const found = new Set<ArrayBuffer>();
  const values = Array.isArray(response) ? response.flatMap((each: object) => Object.values(each) as unknown[]) : Object.values(response);
  for (const value of values) {
    const view = ArrayBuffer.isView(value) ? value : (value as RawTensor | null)?.data;
    if (ArrayBuffer.isView(view) && view.buffer instanceof ArrayBuffer) found.add(view.buffer);
  }
  return [...found];
}
