/** WordList: the words that a model knows, by kind, to be chosen for the query. */
import type { QueryEncoder } from "../src/index";
import { createElement, element } from "./dom";

/** What the words of ARR-COC's vocabulary are (ATTRIBUTES in edgekit/arrcoc/scenes.py); the words of another are "words". */
export const KINDS: readonly (readonly [string, readonly string[]])[] = [
  ["Sizes", ["small", "medium", "large"]],
  ["Colours", ["red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink", "brown", "white", "black"]],
  ["Patterns", ["plain", "striped", "dotted", "checkered", "zigzag", "speckled", "ringed"]],
  ["Shapes", ["circle", "square", "triangle", "star", "cross", "ring", "heart", "crescent", "arrow", "bar"]],
  ["Any object, and borders", ["object", "outline"]],
];

/** A kind, and its concepts: words with the same vector, the usual one first. */
export type Kind = readonly [string, readonly (readonly string[])[]];

/** Concepts by kind; what has none of them is in the last one. */
export function byKind(concepts: readonly (readonly string[])[]): readonly Kind[] {
  const placed = KINDS.map(([name, words]): Kind => [name, concepts.filter(([first]) => words.includes(first ?? ""))]);
  const known = new Set(KINDS.flatMap(([, words]) => words));
  const others = concepts.filter(([first]) => !known.has(first ?? ""));
  const found = placed.filter(([, held]) => held.length > 0);
  return others.length > 0 ? [...found, [found.length > 0 ? "Other words" : "Words", others]] : found;
}

/** A query with a word more, instead of another one of its kind; without it where it is there already. */
export function replaceOfKind(query: readonly string[], word: string): readonly string[] {
  if (query.includes(word)) return query.filter((w) => w !== word);
  const kind = KINDS.find(([, words]) => words.includes(word))?.[1] ?? [];
  const at = query.findIndex((w) => kind.includes(w));
  if (at >= 0) return query.with(at, word);
  const place = (w: string): number => KINDS.findIndex(([, words]) => words.includes(w));
  const later = query.findIndex((w) => place(w) > place(word));
  return later < 0 ? [...query, word] : query.toSpliced(later, 0, word); // sizes, colours, patterns, shapes
}

/** List the words. @param onword - Called with a word that the user chose. */
export function listWords(encoder: QueryEncoder, onword: (word: string) => void): void {
  const details = element("#words", HTMLDetailsElement);
  details.hidden = false;
  element("#word-count", HTMLElement).textContent = String(encoder.words.length);
  // Filled when it is opened: nobody waits for eighty buttons at the start.
  details.addEventListener("toggle", () => {
    const list = element("#word-kinds", HTMLElement);
    if (list.childElementCount > 0) return;
    list.replaceChildren(...byKind(encoder.concepts()).map(([name, held]) => kindGroup(name, held, onword)));
  });
}

function kindGroup(name: string, concepts: Kind[1], onword: (word: string) => void): HTMLElement {
  const items = concepts.map(([word = "", ...synonyms]) => {
    const button = createElement("button", word, { type: "button" });
    if (synonyms.length > 0) button.append(" ", createElement("small", synonyms.join(", ")));
    button.addEventListener("click", () => { onword(word); });
    return createElement("li", [button]);
  });
  return createElement("section", [createElement("h3", name), createElement("ul", items)], { "aria-label": name });
}
