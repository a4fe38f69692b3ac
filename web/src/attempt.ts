/**
 * Attempt: one worker that tries one backend.
 *
 * A failed start of the runtime is sticky in its module instance, so the next attempt gets a fresh worker; and a hang is
 * possible at every step, so every request has a time limit, after which the worker is ended.
 */
import { BackendError, DeviceLostError, type EdgekitError, TimeOutError, UsageError, revive, sentence } from "./errors";
import type { Answers, Reply, Request } from "./wire";

interface Pending {
  readonly onprogress: ((loaded: number, fromCache: boolean) => void) | undefined;
  readonly resolve: (answer: Answers[keyof Answers]) => void;
  readonly reject: (error: Error) => void;
  /** Start its clock, or set it back; undefined where it may take as long as it moves. */
  readonly wind: (() => void) | undefined;
  wound: boolean;
}

export class Attempt {
  private readonly worker: Worker;
  private readonly pending = new Map<number, Pending>();
  private next = 0;
  private end: EdgekitError | undefined;

  constructor() {
    this.worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module", name: "edgekit" });
    this.worker.onmessage = ({ data }: MessageEvent<Reply>) => {
      this.receive(data);
    };
    this.worker.onerror = (event) => {
      event.preventDefault();
      this.terminate(new BackendError(`the worker broke (${event.message || "its script did not load"})`));
    };
  }

  /** Why it cannot be used any more, or undefined while it can. */
  get failure(): EdgekitError | undefined {
    return this.end;
  }

  /**
   * Ask the worker.
   *
   * @param limit - Milliseconds without a word about this request, counted from when all before it are answered; then the
   *   worker is ended, and TimeOutError thrown. None for a download, which may take as long as it moves.
   * @param signal - An aborted request rejects at once; the worker finishes what it does and its answer is dropped.
   * @throws UsageError if the request cannot be handed over, because a bitmap in it is closed or a buffer gone.
   */
  ask<Op extends Request["op"]>(
    request: Extract<Request, { op: Op }>,
    how: { limit?: number; what: string; signal?: AbortSignal | undefined; onprogress?: Pending["onprogress"] },
  ): Promise<Answers[Op]> {
    if (this.end) return Promise.reject(this.end);
    if (how.signal?.aborted) return Promise.reject(reason(how.signal));
    const id = this.next++;
    return new Promise<Answers[Op]>((resolve, reject) => {
      const { limit, signal } = how;
      let timer: ReturnType<typeof setTimeout> | undefined;
      const late = (ms: number): void => {
        this.terminate(new TimeOutError(`${how.what} took longer than ${String(ms / 1000)} s and was ended`));
      };
      const wind = (ms: number): void => {
        clearTimeout(timer);
        timer = setTimeout(late, ms, ms);
      };
      const settle = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", abort);
        this.pending.delete(id);
        this.windFirst();
      };
      const abort = (): void => {
        settle();
        reject(reason(signal));
      };
      signal?.addEventListener("abort", abort);
      this.pending.set(id, {
        onprogress: how.onprogress,
        resolve: (answer) => {
          settle();
          resolve(answer as Answers[Op]);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
        wind: limit === undefined ? undefined : () => { wind(limit); },
        wound: false,
      });
      try {
        this.worker.postMessage({ id, ...request });
      } catch (error) {
        settle();
        reject(new UsageError(`this cannot be handed to the worker (${sentence(error)}): is it closed, or transferred?`));
        return;
      }
      this.windFirst();
    });
  }

  /** End the worker, which gives all its memory back. What is still pending fails with the reason. */
  terminate(reason: EdgekitError = new UsageError("the runner was disposed")): void {
    if (this.end) return;
    this.end = reason;
    this.worker.terminate();
    for (const { reject } of [...this.pending.values()]) reject(reason);
  }

  /** The clock of the oldest request runs: the worker answers one after the other. */
  private windFirst(): void {
    const first = [...this.pending.values()].find((p) => p.wind);
    if (!first || first.wound || this.end) return;
    first.wound = true;
    first.wind?.();
  }

  private receive(reply: Reply): void {
    if ("lost" in reply) {
      this.terminate(new DeviceLostError(`the GPU went away (${reply.lost}): run again, and it starts anew`));
      return;
    }
    const pending = this.pending.get(reply.id);
    if (!pending) return; // aborted meanwhile
    if ("loaded" in reply) {
      if (pending.wound) pending.wind?.();
      pending.onprogress?.(reply.loaded, reply.fromCache);
    } else if ("error" in reply) pending.reject(revive(reply.error));
    else pending.resolve(reply.answer);
  }
}

function reason(signal: AbortSignal | undefined): Error {
  const given: unknown = signal?.reason;
  return given instanceof Error ? given : new DOMException("The operation was aborted.", "AbortError");
}
