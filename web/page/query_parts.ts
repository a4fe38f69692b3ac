/** QueryParts: what is asked for in a query, thing by thing: the model takes one thing at a time. */
import { KINDS, THINGS } from "./word_list";

const BETWEEN = /[,;.+&/|]|(?<=^|\s)(?:and|or)(?=\s|$)/i;

/** The kinds of words: "red" and "scarlet" -> "Colours". */
export type KindOf = ReadonlyMap<string, string>;

/** Of the usual words; `concepts` adds their synonyms, and what else is asked for beside them: things. */
export function kindsOf(concepts: readonly (readonly string[])[] = []): KindOf {
  const kinds = new Map(KINDS.slice(0, -1).flatMap(([kind, words]) => words.map((word): [string, string] => [word, kind])));
  const drawn = concepts.some(([first = ""]) => kinds.has(first));
  for (const words of concepts) {
    const first = words[0] ?? "";
    const kind = kinds.get(first) ?? (drawn && !KINDS.at(-1)?.[1].includes(first) ? THINGS : undefined);
    if (kind !== undefined) for (const word of words) kinds.set(word, kind);
  }
  return kinds;
}

/** "red circle, blue square" and "red circle blue square" -> two things: one has one word of each kind. */
export function queryParts(text: string, kinds: KindOf): readonly string[] {
  return text.split(BETWEEN).flatMap((part) => ofOneThing(part.trim().split(/\s+/).filter(Boolean), kinds));
}

/** A query with a word more, instead of another one of its kind; without it where it is there already. */
export function replaceOfKind(query: readonly string[], word: string, kinds: KindOf): readonly string[] {
  if (query.includes(word)) return query.filter((w) => w !== word);
  const order = [...KINDS.map(([kind]) => kind), THINGS];
  const kind = kinds.get(word);
  if (kind === undefined) return [...query, word];
  const place = (w: string): number => order.indexOf(kinds.get(w) ?? "");
  const at = query.findIndex((w) => kinds.get(w) === kind);
  if (at >= 0) return query.with(at, word);
  const later = query.findIndex((w) => place(w) > place(word));
  return later < 0 ? [...query, word] : query.toSpliced(later, 0, word); // sizes, colours, patterns, shapes, things
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
