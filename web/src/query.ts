/**
 * QueryEncoder: words -> rows of the embedding table -> their mean.
 *
 * `vocabulary.json` is {"dim": 768, "words": [...]}; `embeddings.bin` holds one row a word, float32, little-endian.
 * Text is lower-cased and cut at everything that is no letter and no digit (edgekit/arrcoc/queries.py has the same rule for
 * words that can be known).
 */
import type { Bundle } from "./bundle";
import { ManifestError, QueryError } from "./errors";

/** The files of a bundle that hold its words and their vectors. */
export const WORDS = ["vocabulary.json", "embeddings.bin"] as const;

export interface Encoded {
  readonly vector: Float32Array<ArrayBuffer>;
  readonly known: readonly string[];
  readonly unknown: readonly string[];
}

export class QueryEncoder {
  private readonly rows: ReadonlyMap<string, number>;

  private constructor(
    readonly words: readonly string[],
    readonly dim: number,
    private readonly table: Float32Array,
  ) {
    this.rows = new Map(words.map((word, row) => [word, row]));
  }

  /**
   * The encoder of a bundle, or undefined where its model takes no words.
   *
   * @throws AssetError or HashError if a file does not arrive, ManifestError if the table does not fit the vocabulary.
   */
  static async fetch(bundle: Bundle, signal?: AbortSignal): Promise<QueryEncoder | undefined> {
    const [vocabulary, embeddings] = WORDS;
    if (!bundle.file(vocabulary) || !bundle.file(embeddings)) return undefined;
    const [words, table] = await Promise.all([bundle.fetch(vocabulary, { signal }), bundle.fetch(embeddings, { signal })]);
    return QueryEncoder.from(words, table, bundle.at(embeddings));
  }

  /** @throws ManifestError if the table does not fit the vocabulary. */
  static from(vocabulary: Uint8Array, embeddings: Uint8Array<ArrayBuffer>, url: string): QueryEncoder {
    const { dim, words } = JSON.parse(new TextDecoder().decode(vocabulary)) as { dim: number; words: string[] };
    if (embeddings.byteLength !== 4 * dim * words.length) {
      throw new ManifestError(
        `the embedding table of ${url} has ${String(embeddings.byteLength)} bytes, and ${String(words.length)} words of ${String(dim)} float32 need ${String(4 * dim * words.length)}`,
      );
    }
    return new QueryEncoder(words, dim, floats(embeddings));
  }

  /**
   * Encode a text, or words.
   *
   * @throws QueryError if no word of it is known.
   */
  encode(query: string | readonly string[]): Encoded {
    const words = typeof query === "string" ? split(query) : query.flatMap(split);
    const known = words.filter((w) => this.rows.has(w));
    const unknown = words.filter((w) => !this.rows.has(w));
    if (words.length === 0) throw new QueryError("the query is empty: type a word, for example " + this.examples());
    if (known.length === 0) {
      const named = unknown.map((w) => `"${w}"`).join(", ");
      const near = unknown.flatMap((w) => this.nearest(w) ?? []);
      const hint = near.length > 0 ? `did you mean ${near.map((w) => `"${w}"`).join(", ")}?` : `try ${this.examples()}`;
      throw new QueryError(`the model does not know ${named}: ${hint}`);
    }
    const vector = new Float32Array(this.dim);
    for (const word of known) {
      const from = (this.rows.get(word) ?? 0) * this.dim;
      for (let i = 0; i < this.dim; i++) vector[i] = (vector[i] ?? 0) + (this.table[from + i] ?? 0);
    }
    for (let i = 0; i < this.dim; i++) vector[i] = (vector[i] ?? 0) / known.length;
    return { vector, known, unknown };
  }

  /** Known words that begin with a text, in the vocabulary's order. */
  complete(start: string, most = 8): readonly string[] {
    const low = start.toLowerCase();
    return low === "" ? [] : this.words.filter((w) => w.startsWith(low)).slice(0, most);
  }

  /** The known word that a mistyped one is nearest to: at most two letters off, and fewer than half of them. */
  nearest(word: string): string | undefined {
    const most = Math.min(2, Math.floor((word.length - 1) / 2));
    let best: string | undefined;
    let least = most + 1;
    for (const known of this.words) {
      const off = distance(word, known);
      if (off < least) [best, least] = [known, off];
    }
    return best;
  }

  private examples(): string {
    return this.words
      .slice(0, 3)
      .map((w) => `"${w}"`)
      .join(", ");
  }
}

function split(text: string): string[] {
  return text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
}

/** Levenshtein distance: insertions, deletions and replacements of letters. */
function distance(a: string, b: string): number {
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

function floats(bytes: Uint8Array<ArrayBuffer>): Float32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const table = new Float32Array(bytes.byteLength / 4);
  for (let i = 0; i < table.length; i++) table[i] = view.getFloat32(4 * i, true);
  return table;
}
