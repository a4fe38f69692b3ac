/**
 * Lane: one runner with its questions. At most one run is under way and one waits, the newest, so that ten quick changes
 * cost two runs and an old answer is never shown.
 */
import { DeviceLostError, type DeviceOption, type DtypeOption, type Result, type Runner, TimeOutError, load } from "../src/index";

export interface Question {
  readonly image: ImageBitmap;
  /** Empty for a model that takes none. */
  readonly query: string;
}

export interface Answered {
  readonly question: Question;
  readonly result: Result;
}

interface Hooks {
  readonly onload: (runner: Runner) => void;
  readonly onprogress: (share: number | undefined, text: string) => void;
  readonly onanswer: (answered: Answered) => void;
  readonly onerror: (error: unknown) => void;
}

export class Lane {
  runner: Runner | undefined;
  private loading: AbortController | undefined;
  private asked: Question | undefined;
  private wanted: Question | undefined;
  private busy = false;

  constructor(
    private readonly url: string,
    private readonly hooks: Hooks,
  ) {}

  /**
   * Load another device or precision. The old runner answers until the new one stands, which answers anew what was asked.
   *
   * @returns Whether it stands; undefined if another load came in between.
   */
  async load(device: DeviceOption, dtype: DtypeOption): Promise<boolean | undefined> {
    this.loading?.abort();
    const control = new AbortController();
    this.loading = control;
    this.hooks.onprogress(0, "Loading");
    try {
      const runner = await load(this.url, {
        device,
        dtype,
        signal: control.signal,
        progress_callback: (event) => {
          if (event.status === "progress_total") this.hooks.onprogress(event.progress / 100, progressText(event.loaded, event.total));
        },
      });
      void this.runner?.dispose();
      this.runner = runner;
      this.hooks.onprogress(undefined, "");
      this.wanted = this.asked;
      this.hooks.onload(runner);
      this.advance();
      return true;
    } catch (error) {
      if (control.signal.aborted) return undefined;
      this.hooks.onprogress(undefined, "");
      this.hooks.onerror(error);
      return false;
    }
  }

  /** Ask; only the newest question gets an answer. */
  ask(question: Question): void {
    this.wanted = this.asked = question;
    this.advance();
  }

  /** Forget what was asked. */
  drop(): void {
    this.wanted = this.asked = undefined;
  }

  close(): void {
    this.loading?.abort();
    void this.runner?.dispose();
    this.runner = undefined;
    this.drop();
  }

  private advance(): void {
    if (this.busy || !this.wanted || !this.runner) return;
    const [question, runner] = [this.wanted, this.runner];
    this.wanted = undefined;
    this.busy = true;
    void this.answer(question, runner).finally(() => {
      this.busy = false;
      this.advance();
    });
  }

  private async answer(question: Question, runner: Runner): Promise<void> {
    const stale = (): boolean => this.wanted !== undefined || this.runner !== runner;
    try {
      const result = await attempt(runner, question);
      if (!stale()) this.hooks.onanswer({ question, result });
    } catch (error) {
      if (!stale()) this.hooks.onerror(error);
      else if (this.runner !== runner) this.wanted ??= question; // the runner was replaced under it
    }
  }
}

/** A lost GPU or a hang is tried once more: the runner starts its backend anew, or the next one. */
async function attempt(runner: Runner, { image, query }: Question): Promise<Result> {
  const input = query === "" ? { image } : { image, query };
  try {
    return await runner.run(input);
  } catch (error) {
    if (error instanceof DeviceLostError || error instanceof TimeOutError) return runner.run(input);
    throw error;
  }
}

function progressText(loaded: number, total: number): string {
  const mb = (bytes: number): string => (bytes / 1e6).toFixed(1);
  return loaded < total ? `Loading ${mb(loaded)} of ${mb(total)} MB` : "Checking this device";
}
