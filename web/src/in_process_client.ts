/** InProcessClient: sends requests to a backend in the same thread, as in Node. A run cannot be interrupted there. */
import { Backend, type Start } from "./backend.js";
import { type Client, type RequestOptions, abortReason } from "./client.js";
import { type EdgekitError, UsageError, deserializeError, serializeError } from "./errors.js";
import type { Request, Responses } from "./protocol.js";

export class InProcessClient implements Client {
  private readonly backend: Backend;
  private readonly listeners = new Map<number, RequestOptions["onprogress"]>();
  private nextId = 0;
  private ended: EdgekitError | undefined;

  constructor(start: Start) {
    this.backend = new Backend(start, {
      onprogress: (id, ...bytes) => this.listeners.get(id)?.(...bytes),
      onlost: () => undefined,
    });
  }

  get failure(): EdgekitError | undefined {
    return this.ended;
  }

  async request<Op extends Request["op"]>(request: Extract<Request, { op: Op }>, options: RequestOptions): Promise<Responses[Op]> {
    const { signal, onprogress } = options;
    if (this.ended) throw this.ended;
    if (signal?.aborted) throw abortReason(signal);
    const id = this.nextId++;
    this.listeners.set(id, onprogress);
    const aborted = new Promise<never>((_, reject) => {
      signal?.addEventListener("abort", () => { reject(abortReason(signal)); }, { once: true });
    });
    try {
      return (await Promise.race([this.backend.request(request, id), aborted])) as Responses[Op];
    } catch (error) {
      throw signal?.aborted ? error : deserializeError(serializeError(error));
    } finally {
      this.listeners.delete(id);
    }
  }

  terminate(reason: EdgekitError = new UsageError("the runner was disposed: load the bundle again")): void {
    if (this.ended) return;
    this.ended = reason;
    void this.backend.close();
  }
}
