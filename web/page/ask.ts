/** Ask: the query field, with completion from the words that the model knows (the combobox pattern of WAI-ARIA). */
import type { QueryEncoder } from "../src/index";
import { element, make } from "./element";

const MOST_EXAMPLES = 5;
const PAUSE = 140; // ms without a key before a half-typed query is asked

export class Ask {
  private readonly input = element("#query", HTMLInputElement);
  private readonly list = element("#completions", HTMLUListElement);
  private readonly heard = element("#heard", HTMLElement);
  private encoder: QueryEncoder | undefined;
  private options: readonly string[] = [];
  private examples: readonly string[] = [];
  private active = -1;
  private timer = 0;

  constructor(private readonly onquery: (query: string) => void) {
    this.input.addEventListener("input", () => {
      this.suggest();
      this.later();
    });
    this.input.addEventListener("keydown", (event) => {
      this.key(event);
    });
    this.input.addEventListener("blur", () => {
      this.close();
    });
    this.input.addEventListener("focus", () => {
      this.input.select();
    });
    this.list.addEventListener("pointerdown", (event) => {
      event.preventDefault(); // the field keeps the focus
      const option = event.target instanceof Element ? event.target.closest("li") : null;
      if (option) this.complete(Number(option.dataset.at));
    });
  }

  get text(): string {
    return this.input.value.trim();
  }

  set text(query: string) {
    this.input.value = query;
    this.say();
  }

  know(encoder: QueryEncoder): void {
    this.encoder = encoder;
    this.say();
  }

  /** The model takes no words: say so, once. */
  mute(why: string): void {
    this.input.disabled = true;
    this.heard.textContent = why;
  }

  /** Name the words that the model does not know; where it knows all, show what else could be asked. */
  say(): void {
    if (!this.encoder) return;
    this.heard.replaceChildren();
    let unknown: readonly string[] = [];
    try {
      unknown = this.encoder.encode(this.text).unknown;
    } catch {
      unknown = this.text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
    }
    if (unknown.length === 0) {
      const others = this.examples.filter((e) => e !== this.text).slice(0, MOST_EXAMPLES);
      if (others.length > 0) this.heard.append("Or ", ...others.map((query) => this.example(query)));
      return;
    }
    const named = unknown.map((w) => `“${w}”`).join(", ");
    this.heard.append(`The model does not know ${named}`);
    const near = new Map(unknown.map((wrong) => [this.encoder?.nearest(wrong), wrong]));
    near.delete(undefined);
    if (near.size === 0) return;
    this.heard.append(": did you mean ", ...[...near].map(([right, wrong]) => this.correction(wrong, right ?? "")), "?");
  }

  /** Queries to offer: those of the samples. */
  offer(queries: readonly string[]): void {
    this.examples = [...new Set(queries)].filter(Boolean);
    this.say();
  }

  private example(query: string): HTMLElement {
    const button = make("button", query, { type: "button" });
    button.addEventListener("click", () => {
      this.text = query;
      this.onquery(query);
    });
    return button;
  }

  private correction(wrong: string, right: string): HTMLElement {
    const button = make("button", right, { type: "button" });
    button.addEventListener("click", () => {
      this.text = this.input.value.toLowerCase().replace(new RegExp(`(?<![\\p{L}\\p{N}])${wrong}(?![\\p{L}\\p{N}])`, "u"), right);
      this.onquery(this.text);
      this.input.focus();
    });
    return button;
  }

  private suggest(): void {
    const word = /[\p{L}\p{N}]+$/u.exec(this.input.value.slice(0, this.input.selectionStart ?? undefined))?.[0] ?? "";
    const found = this.encoder?.complete(word, 6) ?? [];
    this.options = found.length === 1 && found[0] === word.toLowerCase() ? [] : found;
    this.active = -1;
    this.list.replaceChildren(
      ...this.options.map((option, i) => {
        const rest = make("span", option.slice(word.length));
        return make("li", [make("b", option.slice(0, word.length)), rest], { role: "option", id: `option-${String(i)}`, "data-at": String(i), "aria-selected": "false" });
      }),
    );
    this.open(this.options.length > 0);
  }

  private key(event: KeyboardEvent): void {
    const open = !this.list.hidden;
    if ((event.key === "ArrowDown" || event.key === "ArrowUp") && open) {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      this.mark((this.active + step + this.options.length) % this.options.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (open && this.active >= 0) this.complete(this.active);
      else this.now();
    } else if (event.key === "Tab" && open && this.active >= 0) {
      event.preventDefault();
      this.complete(this.active);
    } else if (event.key === "Escape") {
      this.close();
    }
  }

  private mark(at: number): void {
    this.active = at;
    [...this.list.children].forEach((option, i) => {
      option.setAttribute("aria-selected", String(i === at));
    });
    this.input.setAttribute("aria-activedescendant", `option-${String(at)}`);
  }

  private complete(at: number): void {
    const caret = this.input.selectionStart ?? this.input.value.length;
    const before = this.input.value.slice(0, caret).replace(/[\p{L}\p{N}]+$/u, this.options[at] ?? "");
    const after = this.input.value.slice(caret);
    this.input.value = before + (after === "" || after.startsWith(" ") ? after : ` ${after}`);
    this.input.setSelectionRange(before.length, before.length);
    this.now();
  }

  private later(): void {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      this.say();
      if (this.text !== "") this.onquery(this.text);
    }, PAUSE);
  }

  private now(): void {
    clearTimeout(this.timer);
    this.close();
    this.say();
    if (this.text !== "") this.onquery(this.text);
  }

  private open(show: boolean): void {
    this.list.hidden = !show;
    this.input.setAttribute("aria-expanded", String(show));
    this.input.removeAttribute("aria-activedescendant");
  }

  private close(): void {
    this.active = -1;
    this.open(false);
  }
}
