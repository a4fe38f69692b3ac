/** Notice: a sentence about what failed, until it is closed or something succeeds. */
import { element } from "./dom";

export class Notice {
  private readonly bar = element("#notice", HTMLElement);

  constructor() {
    element("button", HTMLButtonElement, this.bar).addEventListener("click", () => { this.hide(); });
  }

  /** Show an error's message as a sentence. */
  show(message: string): void {
    const sentence = message.startsWith("http") ? message : `${message.charAt(0).toUpperCase()}${message.slice(1)}`;
    element("p", HTMLElement, this.bar).textContent = `${sentence}.`;
    this.bar.hidden = false;
  }

  hide(): void {
    this.bar.hidden = true;
  }
}
