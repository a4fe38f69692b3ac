/** FrameRate: how many frames a second are answered, and how long one takes. */
import { percentile } from "../src/bench";

const WINDOW = 2000; // ms over which frames are counted
const TOLD = 500; // ms between two reports

export interface Rate {
  /** Answered frames a second. */
  readonly perSecond: number;
  /** Median of the milliseconds from taking a frame to showing its answer. */
  readonly latency: number;
}

export class FrameRate {
  private answers: readonly { readonly at: number; readonly ms: number }[] = [];
  private told = -Infinity;

  constructor(private readonly tell: (rate: Rate) => void) {}

  /** A frame that was taken and shown at these times (performance.now). */
  count(taken: number, shown: number): void {
    this.answers = [...this.answers.filter(({ at }) => shown - at < WINDOW), { at: shown, ms: shown - taken }];
    const [first] = this.answers;
    if (!first || this.answers.length < 3 || shown - this.told < TOLD) return;
    this.told = shown;
    const sorted = this.answers.map(({ ms }) => ms).sort((a, b) => a - b);
    this.tell({ perSecond: (1000 * (this.answers.length - 1)) / (shown - first.at), latency: percentile(sorted, 0.5) });
  }
}
