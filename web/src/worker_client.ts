/**
 * WorkerClient: the page's side of one worker, which runs one backend.
 *
 * A failed start of the runtime is permanent in its module instance, so each candidate gets a new worker. Any step can
 * hang, so each request has a time limit, after which the worker is terminated.
 */
import { BackendError, DeviceLostError, type EdgekitError, TimeOutError, UsageError, deserializeError, firstLine } from "./errors.js";
import { type Client, type RequestOptions, abortReason } from "./client.js";
import type { Request, Responses, WorkerReply } from "./protocol.js";
import { openWorker, refusedScript } from "./worker_script.js";

interface PendingRequest {
  readonly onprogress: RequestOptions["onprogress"];
  readonly resolve: (response: Responses[keyof Responses]) => void;
  readonly reject: (error: Error) => void;
  /** Start or restart the request's timer; undefined for a request without a time limit. */
  readonly restartTimer: (() => void) | undefined;
  timerStarted: boolean;
}

export class WorkerClient implements Client {
  private readonly worker: Worker;
  private readonly pending = new Map<number, PendingRequest>();
  private nextId = 0;
  private ended: EdgekitError | undefined;

  constructor() {
    this.worker = openWorker();
    this.worker.onmessage = ({ data }: MessageEvent<WorkerReply>) => {
      this.receive(data);
    };
    this.worker.onerror = (event) => {
      event.preventDefault();
      this.terminate(refusedScript(event.message) ?? new BackendError(`the worker failed (${event.message || "its script did not load"})`));
    };
  }

  /** Why the worker ended, or undefined while it runs. */
  get failure(): EdgekitError | undefined {
    return this.ended;
  }

  /**
   * Send a request to the worker.
   *
   * @throws TimeOutError after the time limit, when the worker is terminated.
   * @throws UsageError if the request cannot be sent, because it holds a closed bitmap or a transferred buffer.
   */
  request<Op extends Request["op"]>(request: Extract<Request, { op: Op }>, options: RequestOptions): Promise<Responses[Op]> {
    if (this.ended) return Promise.reject(this.ended);
    if (options.signal?.aborted) return Promise.reject(abortReason(options.signal));
    const id = this.nextId++;
    return new Promise<Responses[Op]>((resolve, reject) => {
      const { limit, signal } = options;
      let timer: ReturnType<typeof setTimeout> | undefined;
      const timeOut = (ms: number): void => {
        this.terminate(new TimeOutError(`${options.what} took longer than ${String(ms / 1000)} s and was stopped`));
      };
      const restart = (ms: number): void => {
        clearTimeout(timer);
        timer = setTimeout(timeOut, ms, ms);
      };
      const settle = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", abort);
        this.pending.delete(id);
        this.startOldestTimer();
      };
      const abort = (): void => {
        settle();
        reject(abortReason(signal));
      };
      signal?.addEventListener("abort", abort);
      this.pending.set(id, {
        onprogress: options.onprogress,
        resolve: (response) => {
          settle();
          resolve(response as Responses[Op]);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
        restartTimer: limit === undefined ? undefined : () => { restart(limit); },
        timerStarted: false,
      });
      try {
        this.worker.postMessage({ id, ...request });
      } catch (error) {
        settle();
        reject(new UsageError(`the input cannot be sent to the worker (${firstLine(error)}): closed images and transferred buffers cannot be used`));
        return;
      }
      this.startOldestTimer();
    });
  }

  /** Terminate the worker, which frees all its memory. Pending requests reject with the reason. */
  terminate(reason: EdgekitError = new UsageError("the runner was disposed: load the bundle again")): void {
    if (this.ended) return;
    this.ended = reason;
    this.worker.terminate();
    for (const { reject } of [...this.pending.values()]) reject(reason);
  }

  /** Only the timer of the oldest request runs: the worker handles one request after the other. */
  private startOldestTimer(): void {
    const oldest = [...this.pending.values()].find((p) => p.restartTimer);
    if (!oldest || oldest.timerStarted || this.ended) return;
    oldest.timerStarted = true;
    oldest.restartTimer?.();
  }

  private receive(reply: WorkerReply): void {
    if ("deviceLost" in reply) {
      this.terminate(new DeviceLostError(`the GPU device was lost (${reply.deviceLost}): run again to restart it`));
      return;
    }
    const pending = this.pending.get(reply.id);
    if (!pending) return; // aborted in the meantime
    if ("loaded" in reply) {
      if (pending.timerStarted) pending.restartTimer?.();
      pending.onprogress?.(reply.loaded, reply.fromCache, reply.sent);
    } else if ("error" in reply) pending.reject(deserializeError(reply.error));
    else pending.resolve(reply.response);
  }
}
