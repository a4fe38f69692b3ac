/** QueryField: the text field for the query, which completes words of the vocabulary (WAI-ARIA combobox pattern). */
import type { QueryEncoder } from "../src/index";
import { createElement, element } from "./dom";
import { listWords, replaceOfKind } from "./word_list";

const MAX_EXAMPLES = 5;
const DEBOUNCE = 140; // ms without a key press before an unfinished query is submitted

export class QueryField {
  private readonly input = element("#query", HTMLInputElement);
  private readonly list = element("#completions", HTMLUListElement);
  private readonly status = element("#query-status", HTMLElement);
  private encoder: QueryEncoder | undefined;
  private options: readonly string[] = [];
  private examples: readonly string[] = [];
  private activeOption = -1;
  private timer = 0;

  /**
   * @param onquery - Called with a query when it is complete, or when no key was pressed for a while.
   * @param onedit - Called with the text at every change.
   * @param onerror - Called if the words cannot be fetched.
   */
  constructor(
    private readonly onquery: (query: string) => void,
    private readonly onedit: (text: string) => void,
    private readonly onerror: (error: unknown) => void,
  ) {
    this.input.addEventListener("input", () => {
      this.onedit(this.text);
      this.updateCompletions();
      this.submitLater();
    });
    this.input.addEventListener("keydown", (event) => {
      this.onKeydown(event);
    });
    this.input.addEventListener("blur", () => {
      this.hideList();
    });
    this.input.addEventListener("focus", () => {
      this.input.select();
    });
    this.list.addEventListener("pointerdown", (event) => {
      event.preventDefault(); // keeps the focus in the field
      const option = event.target instanceof Element ? event.target.closest("li") : null;
      if (option) this.complete(Number(option.dataset.at));
    });
  }

  get text(): string {
    return this.input.value.trim();
  }

  set text(query: string) {
    this.input.value = query;
    this.updateStatus();
  }

  setEncoder(encoder: QueryEncoder): void {
    if (!this.encoder) {
      listWords(encoder, (word) => { this.toggleWord(word); }, this.onerror);
    }
    this.encoder = encoder;
    this.updateStatus();
  }

  /** Add a word to the query, or take it out; of two words of a kind the later one stays. */
  private toggleWord(word: string): void {
    const words = this.text.toLowerCase().split(/\s+/).filter(Boolean);
    this.text = replaceOfKind(words, word).join(" ");
    this.onedit(this.text);
    this.submit();
  }

  /** Disable the field, for a model that takes no words. */
  disable(reason: string): void {
    this.input.disabled = true;
    this.status.textContent = reason;
  }

  /** List the unknown words with corrections; where all words are known, list example queries. */
  updateStatus(): void {
    if (!this.encoder) return;
    this.status.replaceChildren();
    const unknown = this.encoder.unknown(this.text);
    if (unknown.length === 0) {
      const others = this.examples.filter((e) => e !== this.text).slice(0, MAX_EXAMPLES);
      if (others.length > 0) this.status.append("Examples: ", ...others.map((query) => this.exampleButton(query)));
      return;
    }
    const named = unknown.map((w) => `“${w}”`).join(", ");
    this.status.append(`The model does not know ${named}`);
    const near = new Map(unknown.map((wrong) => [this.encoder?.nearest(wrong), wrong]));
    near.delete(undefined);
    if (near.size === 0) return;
    this.status.append(": did you mean ", ...[...near].map(([right, wrong]) => this.correctionButton(wrong, right ?? "")), "?");
  }

  /** Set the example queries: those of the samples. */
  setExamples(queries: readonly string[]): void {
    this.examples = [...new Set(queries)].filter(Boolean);
    this.updateStatus();
  }

  private exampleButton(query: string): HTMLElement {
    const button = createElement("button", query, { type: "button" });
    button.addEventListener("click", () => {
      this.text = query;
      this.onquery(query);
    });
    return button;
  }

  private correctionButton(wrong: string, right: string): HTMLElement {
    const button = createElement("button", right, { type: "button" });
    button.addEventListener("click", () => {
      this.text = this.input.value.toLowerCase().replace(new RegExp(`(?<![\\p{L}\\p{N}])${wrong}(?![\\p{L}\\p{N}])`, "u"), right);
      this.onquery(this.text);
      this.input.focus();
    });
    return button;
  }

  private updateCompletions(): void {
    const word = /[\p{L}\p{N}]+$/u.exec(this.input.value.slice(0, this.input.selectionStart ?? undefined))?.[0] ?? "";
    const found = this.encoder?.complete(word, 6) ?? [];
    this.options = found.length === 1 && found[0] === word.toLowerCase() ? [] : found;
    this.activeOption = -1;
    this.list.replaceChildren(
      ...this.options.map((option, i) => {
        const rest = createElement("span", option.slice(word.length));
        return createElement("li", [createElement("b", option.slice(0, word.length)), rest], { role: "option", id: `option-${String(i)}`, "data-at": String(i), "aria-selected": "false" });
      }),
    );
    this.showList(this.options.length > 0);
  }

  private onKeydown(event: KeyboardEvent): void {
    const open = !this.list.hidden;
    if ((event.key === "ArrowDown" || event.key === "ArrowUp") && open) {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      this.highlight((this.activeOption + step + this.options.length) % this.options.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (open && this.activeOption >= 0) this.complete(this.activeOption);
      else this.submit();
    } else if (event.key === "Tab" && open && this.activeOption >= 0) {
      event.preventDefault();
      this.complete(this.activeOption);
    } else if (event.key === "Escape") {
      this.hideList();
    }
  }

  private highlight(at: number): void {
    this.activeOption = at;
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
    this.submit();
  }

  private submitLater(): void {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      this.updateStatus();
      this.onquery(this.text);
    }, DEBOUNCE);
  }

  private submit(): void {
    clearTimeout(this.timer);
    this.hideList();
    this.updateStatus();
    this.onquery(this.text);
  }

  private showList(show: boolean): void {
    this.list.hidden = !show;
    this.input.setAttribute("aria-expanded", String(show));
    this.input.removeAttribute("aria-activedescendant");
  }

  private hideList(): void {
    this.activeOption = -1;
    this.showList(false);
  }
}
