/**
 * RunnerSlot: one runner and its requests. At most one request runs and one waits, the newest: ten quick changes need two
 * runs, and an outdated result is never shown.
 */
import { type Bundle, DeviceLostError, type DeviceOption, type DtypeOption, type Result, type Runner, TimeOutError, load } from "../src/index";
import { needsQuery } from "./purpose";

export interface InferenceRequest {
  readonly image: ImageBitmap;
  /** Empty for a model without queries. */
  readonly query: string;
  /** The query's vector, where it is known before the words' vectors are fetched. */
  readonly vector?: Float32Array | undefined;
}

export interface InferenceResult {
  readonly request: InferenceRequest;
  readonly result: Result;
}

interface Hooks {
  readonly onload: (runner: Runner) => void;
  readonly onprogress: (share: number | undefined, text: string) => void;
  readonly onresult: (result: InferenceResult) => void;
  readonly onerror: (error: unknown) => void;
}

export class RunnerSlot {
  runner: Runner | undefined;
  private loading: AbortController | undefined;
  private latest: InferenceRequest | undefined;
  private waiting: InferenceRequest | undefined;
  private busy = false;
  private onidle: (() => void)[] = [];

  constructor(
    private readonly bundle: Promise<Bundle>,
    private readonly hooks: Hooks,
  ) {}

  /**
   * Load another device or precision. The current runner stays in use until the new one is loaded, which then runs the latest
   * request again.
   *
   * @returns Whether it was loaded; undefined if another load replaced this one.
   */
  async load(device: DeviceOption, dtype: DtypeOption): Promise<boolean | undefined> {
    this.loading?.abort();
    const control = new AbortController();
    this.loading = control;
    this.hooks.onprogress(0, "Loading");
    try {
      const runner = await load(await this.bundle, {
        device,
        dtype,
        selfTest: "after",
        signal: control.signal,
        progress_callback: (event) => {
          if (event.status === "progress_total") this.hooks.onprogress(event.progress / 100, progressText(event.loaded, event.total));
        },
      });
      void this.runner?.dispose();
      this.runner = runner;
      this.hooks.onprogress(undefined, "");
      this.waiting = this.latest;
      this.hooks.onload(runner);
      this.runNext();
      return true;
    } catch (error) {
      if (control.signal.aborted) return undefined;
      this.hooks.onprogress(undefined, "");
      this.hooks.onerror(error);
      return false;
    }
  }

  /** Submit a request; it replaces one that waits. */
  submit(request: InferenceRequest): void {
    this.waiting = this.latest = request;
    this.runNext();
  }

  /** Settles when no request runs or waits for the runner. */
  idle(): Promise<void> {
    return new Promise((resolve) => {
      this.onidle.push(resolve);
      this.tellIdle();
    });
  }

  /** Drop the requests. */
  clearRequests(): void {
    this.waiting = this.latest = undefined;
  }

  close(): void {
    this.loading?.abort();
    void this.runner?.dispose();
    this.runner = undefined;
    this.clearRequests();
  }

  private runNext(): void {
    if (this.busy || !this.waiting || !this.runner) return;
    const [request, runner] = [this.waiting, this.runner];
    this.waiting = undefined;
    this.busy = true;
    void this.execute(request, runner).finally(() => {
      this.busy = false;
      this.runNext();
      this.tellIdle();
    });
  }

  private tellIdle(): void {
    if (this.busy || (this.waiting && this.runner)) return;
    for (const resolve of this.onidle.splice(0)) resolve();
  }

  private async execute(request: InferenceRequest, runner: Runner): Promise<void> {
    const stale = (): boolean => this.latest !== request || this.runner !== runner;
    try {
      const result = await runWithRetry(runner, request);
      if (!stale()) this.hooks.onresult({ request, result });
    } catch (error) {
      if (!stale()) this.hooks.onerror(error);
    }
  }
}

/** After a lost GPU device or a time-out, run once more: the runner starts its backend again, or falls back. */
async function runWithRetry(runner: Runner, { image, query, vector }: InferenceRequest): Promise<Result> {
  const size = runner.fittingSize(image);
  const input = query === "" ? { image, size } : { image, query: (needsQuery(runner.bundle) && vector) || query, size };
  try {
    return await runner.run(input);
  } catch (error) {
    if (error instanceof DeviceLostError || error instanceof TimeOutError) return runner.run(input);
    throw error;
  }
}

function progressText(loaded: number, total: number): string {
  const mb = (bytes: number): string => (bytes / 1e6).toFixed(1);
  return loaded < total ? `Loading ${mb(loaded)} of ${mb(total)} MB` : "Running the self-test";
}
