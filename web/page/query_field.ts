/** QueryField: the text field for the query, which completes words of the vocabulary (WAI-ARIA combobox pattern). */
import type { QueryEncoder } from "../src/index";
import { cutWords } from "./answer_words";
import { createElement, element } from "./dom";
import { type KindOf, kindsOf, queryParts, replaceOfKind } from "./query_parts";
import type { Change } from "./steps";
import { listWords } from "./word_list";

const DEBOUNCE = 140; // ms without a key press before an unfinished query is submitted

/** Queries that a picture answers, and one that it rightly does not. */
export interface Examples {
  readonly queries: readonly string[];
  readonly absent?: string;
}

export class QueryField {
  private readonly input = element("#query", HTMLInputElement);
  private readonly list = element("#completions", HTMLUListElement);
  private readonly status = element("#query-status", HTMLElement);
  private encoder: QueryEncoder | undefined;
  private options: readonly string[] = [];
  private examples: Examples = { queries: [] };
  private kinds: KindOf = kindsOf();
  /** Which of several things in the text is asked for. */
  private part = 0;
  /** Whether the list of words was opened here, not by the user. */
  private listed = false;
  private activeOption = -1;
  private timer = 0;

  /**
   * @param onquery - Called with the text when it is complete, or when no key was pressed for a while ("typing").
   * @param onedit - Called with the text at every change.
   */
  constructor(
    private readonly onquery: (text: string, change: Change) => void,
    private readonly onedit: (text: string) => void,
  ) {
    this.input.addEventListener("input", () => {
      this.part = 0;
      void this.encoder?.ready().catch(() => undefined); // the query tries again, and says what is wrong
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
    this.part = 0;
    this.updateStatus();
  }

  /** What is asked for: the text, or one of the things that it names; with known words for those that are kinds of them. */
  get query(): string {
    return this.parts[this.part] ?? this.text;
  }

  private get parts(): readonly string[] {
    return queryParts(this.encoder?.withKinds(this.text) ?? this.text, this.kinds);
  }

  setEncoder(encoder: QueryEncoder): void {
    if (!this.encoder) {
      listWords(encoder, (word) => { this.toggleWord(word); });
      this.kinds = kindsOf(encoder.concepts());
    }
    this.encoder = encoder;
    this.updateStatus();
  }

  /** Add a word to the query, or take it out; of two words of a kind the later one stays. */
  private toggleWord(word: string): void {
    const words = this.text.toLowerCase().split(/\s+/).filter(Boolean);
    this.text = replaceOfKind(words, word, this.kinds).join(" ");
    this.onedit(this.text);
    this.submit();
  }

  /** Disable the field, for a model that takes no words. */
  disable(reason: string): void {
    this.input.disabled = true;
    this.status.textContent = reason;
  }

  /** List the unknown words with corrections and the known ones, or the several things, or what the picture answers. */
  updateStatus(): void {
    if (!this.encoder) return;
    const unknown = this.encoder.unknown(this.query);
    const several = [...(this.parts.length > 1 ? this.partHints() : []), ...this.kindHints(this.encoder)];
    const hints = document.createElement("p");
    hints.append(...several, ...(unknown.length > 0 ? this.corrections(unknown, this.encoder) : several.length > 0 ? [] : this.exampleHints()));
    // What says the same stays: else a press would miss its button, and a screen reader say it twice.
    if (hints.innerHTML !== this.status.innerHTML) this.status.replaceChildren(...hints.childNodes);
    this.showWords(unknown.some((word) => this.encoder?.nearest(word) === undefined && this.encoder?.complete(word, 1).length === 0));
  }

  /** Set what the picture answers, and what it rightly does not. */
  setExamples(examples: Examples): void {
    this.examples = examples;
    this.updateStatus();
  }

  private corrections(unknown: readonly string[], encoder: QueryEncoder): readonly (string | Node)[] {
    const named = unknown.map((w) => `“${cutWords(w)}”`).join(", ");
    const near = new Map(unknown.map((wrong) => [encoder.nearest(wrong), wrong]));
    near.delete(undefined);
    const hints = near.size === 0 ? [". "] : [": did you mean ", ...[...near].map(([right, wrong]) => this.correctionButton(wrong, right ?? "")), "? "];
    return [`The model does not know ${named}`, ...hints, "It knows the words below."];
  }

  private kindHints(encoder: QueryEncoder): readonly string[] {
    const unknown = encoder.unknown(this.text).filter((word) => encoder.kindOf(word) !== undefined);
    const quoted = (words: readonly string[]): string => words.map((word) => `“${cutWords(word)}”`).join(" and ");
    return unknown.length > 0 ? [`The model does not know ${quoted(unknown)}: it looks for ${quoted(unknown.map((word) => encoder.withKinds(word)))}. `] : [];
  }

  private partHints(): readonly (string | Node)[] {
    const buttons = this.parts.map((part, at) => {
      const button = createElement("button", cutWords(part), { type: "button", "aria-pressed": String(at === this.part) });
      button.addEventListener("click", () => {
        this.part = at;
        this.submit();
      });
      return button;
    });
    return ["The model looks for one thing at a time: ", ...buttons, " "];
  }

  private exampleHints(): readonly (string | Node)[] {
    const { queries, absent } = this.examples;
    const inside = queries.filter((query) => query !== this.text).map((query) => this.exampleButton(query));
    const outside = absent !== undefined && absent !== this.text ? ["Not in it, to see a miss: ", this.exampleButton(absent)] : [];
    return [...(inside.length > 0 ? ["In this picture: ", ...inside] : []), ...outside];
  }

  /** Open the list of words where it helps, and close it again. */
  private showWords(help: boolean): void {
    const details = element("#words", HTMLDetailsElement);
    if (help && !details.open) details.open = this.listed = true;
    else if (!help && this.listed) details.open = this.listed = false;
  }

  private exampleButton(query: string): HTMLElement {
    const button = createElement("button", query, { type: "button" });
    button.addEventListener("click", () => {
      this.text = query;
      this.onquery(query, "step");
    });
    return button;
  }

  private correctionButton(wrong: string, right: string): HTMLElement {
    const button = createElement("button", right, { type: "button" });
    button.addEventListener("click", () => {
      this.text = this.input.value.toLowerCase().replace(new RegExp(`(?<![\\p{L}\\p{N}])${wrong}(?![\\p{L}\\p{N}])`, "u"), right);
      this.onquery(this.text, "typed");
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
      this.onquery(this.text, "typing");
    }, DEBOUNCE);
  }

  private submit(): void {
    clearTimeout(this.timer);
    this.hideList();
    this.updateStatus();
    this.onquery(this.text, "typed");
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
