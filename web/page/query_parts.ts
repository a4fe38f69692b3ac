/** QueryParts: what is asked for in a query, thing by thing: the model takes one thing at a time. */
import { KINDS } from "./word_list";

const BETWEEN = /[,;.+&/|]|(?<=^|\s)(?:and|or)(?=\s|$)/i;

/** The kinds of words: "red" and "scarlet" -> "Colours". */
export type KindOf = ReadonlyMap<string, string>;

/** Of the usual words; `concepts` adds their synonyms. */
export function kindsOf(concepts: readonly (readonly string[])[] = []): KindOf {
  const kinds = new Map(KINDS.slice(0, -1).flatMap(([kind, words]) => words.map((word): [string, string] => [word, kind])));
  for (const [first = "", ...others] of concepts) {
    const kind = kinds.get(first);
    if (kind !== undefined) for (const word of others) kinds.set(word, kind);
  }
  return kinds;
}

/** "red circle, blue square" and "red circle blue square" -> two things: one has one word of each kind. */
export function queryParts(text: string, kinds: KindOf): readonly string[] {
  return text.split(BETWEEN).flatMap((part) => ofOneThing(part.trim().split(/\s+/).filter(Boolean), kinds));
}

function ofOneThing(words: readonly string[], kinds: KindOf): readonly string[] {
  const parts: string[][] = [];
  let seen = new Set<string>();
  for (const word of words) {
    const kind = kinds.get(word.toLowerCase());
    if (parts.length === 0 || (kind !== undefined && seen.has(kind))) {
      parts.push([]);
      seen = new Set();
    }
    parts.at(-1)?.push(word);
    if (kind !== undefined) seen.add(kind);
  }
  return parts.map((part) => part.join(" "));
}
