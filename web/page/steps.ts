/** Steps: what was asked, one entry of the browser's history each, so that Back shows the one before. */
import { type PageState, formatUrlState, parseUrlState } from "./url_state";

const KEPT = 6; // pictures of the user's own, which have no address

/** How a change of the state enters the history: typed text is one step, from its first letter until it is complete. */
export type Change = "step" | "typing" | "typed" | "setting";

export class Steps {
  private readonly pictures = new Map<number, ImageBitmap>();
  private count = 0;
  private typing = false;

  /** @param onback - Called with the state of that step, and with its picture where that is the user's own and kept. */
  constructor(onback: (past: PageState, own: ImageBitmap | undefined) => void) {
    addEventListener("popstate", (event) => {
      this.typing = false;
      onback(parseUrlState(location.search), this.pictures.get(numberOf(event.state)));
    });
  }

  /** Write the state into the address, as a further step where something else is asked. */
  write(state: PageState, change: Change): void {
    const url = formatUrlState(state) || location.pathname;
    const same = url === (location.search || location.pathname);
    if (!same && (change === "step" || (change !== "setting" && !this.typing))) history.pushState(history.state, "", url);
    else history.replaceState(history.state, "", url);
    if (change !== "setting") this.typing = change === "typing" && (this.typing || !same);
  }

  /** Keep the user's own picture with the step that shows it; without one the step shows a sample. */
  keep(picture: ImageBitmap | undefined): void {
    if (picture) this.pictures.set(++this.count, picture);
    this.pictures.delete(this.count - KEPT);
    history.replaceState(picture ? this.count : null, "");
  }
}

function numberOf(state: unknown): number {
  return typeof state === "number" ? state : 0;
}
