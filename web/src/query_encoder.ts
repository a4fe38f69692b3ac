/**
 * QueryEncoder: a query's vector is the mean of its words' rows in the embedding table.
 *
 * `vocabulary.json` is {"dim": 768, "scale": ..., "offset": ..., "words": [...], "rows": [...]}: the row of each word in
 * `embeddings.bin`, which has int8 values; each is scale * byte + offset. Words that mean the same share a row. "near" may
 * hold, by known word, the unknown ones that it is the nearest to in meaning.
 * Text is converted to lower case and split at every character that is neither a letter nor a digit, as in
 * plugins/edgekit_arrcoc/queries.py.
 */
import type { Bundle } from "./bundle.js";
import { ManifestError, QueryError } from "./errors.js";

/** The files of a bundle with its words and their vectors. */
export const VOCABULARY_FILES = ["vocabulary.json", "embeddings.bin"] as const;

const WORD = /[\p{L}\p{N}]+/gu;

export interface EncodedQuery {
  readonly vector: Float32Array<ArrayBuffer>;
  readonly known: readonly string[];
}

interface Vocabulary {
  readonly dim: number;
  readonly scale: number;
  readonly offset: number;
  readonly words: readonly string[];
  readonly rows: readonly number[];
  readonly near?: Readonly<Record<string, readonly string[]>>;
}

export class QueryEncoder {
  readonly words: readonly string[];
  readonly dim: number;
  private readonly rows: ReadonlyMap<string, number>;
  private readonly near: ReadonlyMap<string, string>;
  private table: Promise<Float32Array> | undefined;

  private constructor(
    { dim, words, rows, near = {} }: Vocabulary,
    private readonly fetchTable: () => Promise<Float32Array>,
  ) {
    [this.words, this.dim] = [words, dim];
    this.rows = new Map(words.map((word, at) => [word, rows[at] ?? 0]));
    this.near = new Map(Object.entries(near).flatMap(([known, unknown]) => unknown.map((word) => [word, known])));
  }

  /**
   * The encoder of a bundle, or undefined where the bundle has no vocabulary. The table is fetched when it is needed.
   *
   * @throws AssetError or HashError if the vocabulary cannot be fetched.
   */
  static async fetch(bundle: Bundle, signal?: AbortSignal): Promise<QueryEncoder | undefined> {
    const [vocabulary, embeddings] = VOCABULARY_FILES;
    if (!bundle.file(vocabulary) || !bundle.file(embeddings)) return undefined;
    const words = await bundle.fetch(vocabulary, { signal });
    return QueryEncoder.from(words, () => bundle.fetch(embeddings), bundle.urlOf(embeddings));
  }

  /**
   * @param embeddings - Fetches the table, which `url` names in errors.
   * @throws ManifestError if the vocabulary does not say the row of each word, as those of earlier versions.
   */
  static from(vocabulary: Uint8Array, embeddings: () => Promise<Uint8Array<ArrayBuffer>>, url: string): QueryEncoder {
    const known = JSON.parse(new TextDecoder().decode(vocabulary)) as Vocabulary;
    const { dim, scale, offset, rows } = known;
    if ((rows as readonly number[] | undefined)?.length !== known.words.length) {
      throw new ManifestError(`the vocabulary does not say which rows of ${url} its words have: export the bundle again`);
    }
    return new QueryEncoder(known, async () => {
      const table = await embeddings();
      const needed = dim * (rows.reduce((most, row) => Math.max(most, row), -1) + 1);
      if (table.byteLength === needed) return Float32Array.from(new Int8Array(table.buffer, table.byteOffset, needed), (byte) => scale * byte + offset);
      throw new ManifestError(`the embedding table ${url} has ${String(table.byteLength)} bytes, but the rows of its words need ${String(needed)}`);
    });
  }

  /**
   * Fetch the table, once.
   *
   * @throws AssetError or HashError if it cannot be fetched, which the next call tries again; ManifestError if it does not
   *   match the vocabulary.
   */
  async ready(): Promise<void> {
    await this.fetched();
  }

  /**
   * Encode a text, or a list of words.
   *
   * @throws QueryError if there is no word, or one that is not known: "not red" must not be answered as "red"; and what
   *   `ready` throws.
   */
  async encode(query: string | readonly string[]): Promise<EncodedQuery> {
    const words = typeof query === "string" ? split(query) : query.flatMap(split);
    const unknown = this.unknown(query);
    if (words.length === 0) throw new QueryError(`the query holds no word: type one, for example ${this.examples()}`);
    if (unknown.length > 0) {
      const named = unknown.map((w) => `"${w}"`).join(", ");
      const near = unknown.flatMap((w) => this.nearest(w) ?? []);
      const hint = near.length > 0 ? `did you mean ${near.map((w) => `"${w}"`).join(", ")}?` : `try ${this.examples()}`;
      throw new QueryError(`the model does not know ${named}: ${hint}`);
    }
    const table = await this.fetched();
    const vector = new Float32Array(this.dim);
    for (const word of words) {
      const from = (this.rows.get(word) ?? 0) * this.dim;
      for (let i = 0; i < this.dim; i++) vector[i] = (vector[i] ?? 0) + (table[from + i] ?? 0);
    }
    for (let i = 0; i < this.dim; i++) vector[i] = (vector[i] ?? 0) / words.length;
    return { vector, known: words };
  }

  /** The words of a query that the model does not know, each once. */
  unknown(query: string | readonly string[]): readonly string[] {
    const words = typeof query === "string" ? split(query) : query.flatMap(split);
    return [...new Set(words.filter((w) => !this.rows.has(w)))];
  }

  /** Known words that start with a text, in the vocabulary's order. */
  complete(start: string, limit = 8): readonly string[] {
    const low = start.toLowerCase();
    return low === "" ? [] : this.words.filter((w) => w.startsWith(low)).slice(0, limit);
  }

  /** The words that mean the same, which share a row: the first one of each, then its synonyms. */
  concepts(): readonly (readonly string[])[] {
    const found = new Map<number, string[]>();
    this.rows.forEach((row, word) => found.set(row, [...(found.get(row) ?? []), word]));
    return [...found.values()];
  }

  /** The known word that an unknown one is a kind of ("beagle": "dog"), or undefined. */
  kindOf(word: string): string | undefined {
    return this.near.get(word);
  }

  /** A text with known words in place of those that are kinds of them. */
  withKinds(text: string): string {
    return text.replace(WORD, (word) => this.kindOf(word.toLowerCase()) ?? word);
  }

  /** The known word nearest to an unknown one: what it is a kind of, or else at most two edits, fewer than half of its letters. */
  nearest(word: string): string | undefined {
    if (this.near.has(word)) return this.near.get(word);
    const maxEdits = Math.min(2, Math.floor((word.length - 1) / 2));
    let best: string | undefined;
    let fewest = maxEdits + 1;
    for (const known of this.words) {
      const edits = editDistance(word, known);
      if (edits < fewest) [best, fewest] = [known, edits];
    }
    return best;
  }

  private fetched(): Promise<Float32Array> {
    this.table ??= this.fetchTable().catch((error: unknown) => {
      this.table = undefined;
      throw error;
    });
    return this.table;
  }

  private examples(): string {
    return this.words
      .slice(0, 3)
      .map((w) => `"${w}"`)
      .join(", ");
  }
}

function split(text: string): string[] {
  return text.toLowerCase().match(WORD) ?? [];
}

/** Levenshtein distance: insertions, deletions and replacements of letters. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      next.push(Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, (row[j - 1] ?? 0) + same));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
