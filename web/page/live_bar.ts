/** LiveBar: what stands over a live picture: how fast it is answered, and the button that stops it. */
import { element } from "./dom";
import type { Rate } from "./frame_rate";

const SPOKEN = 4000; // ms between two sentences for screen readers

export class LiveBar {
  private readonly bar = element("#live-bar", HTMLElement);
  private readonly stop = element("#live-stop", HTMLButtonElement);
  private readonly rate = element("#live-rate", HTMLElement);
  private readonly said = element("#live-said", HTMLElement);
  private before: Element | null = null;
  private spoken = -Infinity;

  constructor(onstop: () => void) {
    this.stop.addEventListener("click", onstop);
  }

  show(): void {
    this.bar.hidden = false;
    this.rate.textContent = "Live";
    this.said.textContent = "The live picture has started";
    this.spoken = performance.now();
    this.silence(true);
    this.before = document.activeElement;
    this.stop.focus({ preventScroll: true });
  }

  hide(): void {
    const focused = document.activeElement === this.stop;
    this.bar.hidden = true;
    this.said.textContent = "The live picture has stopped";
    this.silence(false);
    if (focused && this.before instanceof HTMLElement) this.before.focus({ preventScroll: true });
  }

  showRate({ perSecond, latency }: Rate): void {
    this.rate.textContent = `${perSecond.toFixed(1)} frames/s, median ${latency.toFixed(latency < 10 ? 1 : 0)} ms`;
  }

  /** Say what is shown, where it has changed; not with every frame. */
  say(sentence: string): void {
    if (performance.now() - this.spoken < SPOKEN || this.said.textContent === sentence) return;
    this.spoken = performance.now();
    this.said.textContent = sentence;
  }

  /** Lines that are said when they change: with every frame they would never end. */
  private silence(quiet: boolean): void {
    for (const id of ["#answer-line", "#answers-live"]) element(id, HTMLElement).setAttribute("aria-live", quiet ? "off" : "polite");
  }
}
