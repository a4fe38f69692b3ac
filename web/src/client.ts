/** Client: what sends requests to one backend, which runs in a worker, or in Node in the same thread. */
import type { OnBytes } from "./download.js";
import type { EdgekitError } from "./errors.js";
import type { Request, Responses } from "./protocol.js";

export interface RequestOptions {
  /** Milliseconds without a reply, counted from the moment when all earlier requests are answered; none for a download. */
  readonly limit?: number;
  /** What is done, for error messages. */
  readonly what: string;
  /** An aborted request rejects at once; the work is finished and its response is dropped. */
  readonly signal?: AbortSignal | undefined;
  readonly onprogress?: OnBytes | undefined;
}

export interface Client {
  /** Why the backend ended, or undefined while it runs. */
  readonly failure: EdgekitError | undefined;

  /**
   * Send a request.
   *
   * @throws TimeOutError after the time limit, when the backend is ended.
   * @throws UsageError if the request cannot be sent, because it holds a closed bitmap or a transferred buffer.
   */
  request<Op extends Request["op"]>(request: Extract<Request, { op: Op }>, options: RequestOptions): Promise<Responses[Op]>;

  /** End the backend, which frees all its memory. Pending requests reject with the reason. */
  terminate(reason?: EdgekitError): void;
}

export function abortReason(signal: AbortSignal | undefined): Error {
  const given: unknown = signal?.reason;
  return given instanceof Error ? given : new DOMException("The operation was aborted.", "AbortError");
}
