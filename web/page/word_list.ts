/** WordList: the words that a model knows, by kind, to be chosen for the query. */
import type { QueryEncoder } from "../src/index";
import { createElement, element } from "./dom";

/** What ARR-COC's words for drawn shapes are (ATTRIBUTES in plugins/edgekit_arrcoc/queries.py); the words of another model are "words". */
export const KINDS: readonly (readonly [string, readonly string[]])[] = [
  ["Sizes", ["small", "medium", "large"]],
  ["Colours", ["red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink", "brown", "white", "black"]],
  ["Patterns", ["plain", "striped", "dotted", "checkered", "zigzag", "speckled", "ringed"]],
  ["Shapes", ["circle", "square", "triangle", "star", "cross", "ring", "heart", "crescent", "arrow", "bar"]],
  ["Any object, and borders", ["object", "outline"]],
];

/** The kind of ARR-COC's other words: nouns. */
export const THINGS = "Things";

/** Words of one kind from which on their synonyms are shown when one points at them, not beside them. */
const MANY = 40;

/** A kind, and its concepts: words with the same vector, the usual one first. */
export type Kind = readonly [string, readonly (readonly string[])[]];

/** Concepts by kind; what has none of them is in the last one. */
export function byKind(concepts: readonly (readonly string[])[]): readonly Kind[] {
  const placed = KINDS.map(([name, words]): Kind => [name, concepts.filter(([first]) => words.includes(first ?? ""))]);
  const known = new Set(KINDS.flatMap(([, words]) => words));
  const others = concepts.filter(([first]) => !known.has(first ?? ""));
  const found = placed.filter(([, held]) => held.length > 0);
  return others.length > 0 ? [...found, [found.length > 0 ? THINGS : "Words", others]] : found;
}

/** List the words. @param onword - Called with a word that the user chose. */
export function listWords(encoder: QueryEncoder, onword: (word: string) => void): void {
  const details = element("#words", HTMLDetailsElement);
  details.hidden = false;
  element("#word-count", HTMLElement).textContent = String(encoder.words.length);
  // Filled when it is opened: nobody waits for hundreds of buttons at the start.
  details.addEventListener("toggle", () => {
    const list = element("#word-kinds", HTMLElement);
    if (list.childElementCount > 0) return;
    list.replaceChildren(...byKind(encoder.concepts()).map(([name, held]) => kindGroup(name, held, onword)));
  });
}

function kindGroup(name: string, concepts: Kind[1], onword: (word: string) => void): HTMLElement {
  const items = concepts.map(([word = "", ...synonyms]) => {
    const button = createElement("button", word, { type: "button" });
    if (synonyms.length > 0 && concepts.length > MANY) button.title = synonyms.join(", ");
    else if (synonyms.length > 0) button.append(" ", createElement("small", synonyms.join(", ")));
    button.addEventListener("click", () => { onword(word); });
    return createElement("li", [button]);
  });
  const section = createElement("section", [createElement("h3", name), createElement("ul", items)], { "aria-label": name });
  section.toggleAttribute("data-many", concepts.length > MANY);
  return section;
}
