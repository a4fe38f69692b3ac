/** AnswerWords: a map of relevance in words. */
import type { Result } from "../src/index";
import { areaOf } from "./area";

const LONGEST_WORD = 24; // letters of a word that a sentence repeats

/** A text whose longer words are cut: nothing known is so long. */
export function cutWords(text: string): string {
  return text.replaceAll(/[\p{L}\p{N}_]{25,}/gu, (word) => `${word.slice(0, LONGEST_WORD)}…`);
}

export type ScoreMap = Pick<Result, "rows" | "columns" | "relevance" | "present">;

/** What was found for a query and where; without a threshold, which patch fits best. */
export function answerSentence({ rows, columns, relevance, present }: ScoreMap, query: string, threshold: number | null): string {
  const highest = relevance[mostRelevant({ relevance })] ?? 0;
  if (present === false) {
    return `Nothing like “${cutWords(query)}” here: the highest relevance is ${highest.toFixed(2)}, below ${(threshold ?? 0).toFixed(2)}.`;
  }
  const asked = query === "" ? "" : ` “${query}”`;
  return `${present ? `Found${asked}` : `Closest to${asked || " the query"}`}: ${bestPlace({ rows, columns, relevance })}, relevance ${highest.toFixed(2)}.`;
}

/** Where the most relevant patch is: "top left (row 2, column 3)". */
export function bestPlace({ rows, columns, relevance }: Omit<ScoreMap, "present">): string {
  const best = mostRelevant({ relevance });
  const [row, column] = [Math.floor(best / columns), best % columns];
  return `${areaOf(row, column, rows, columns)} (row ${String(row + 1)}, column ${String(column + 1)})`;
}

/** The patch with the highest score. */
export function mostRelevant({ relevance }: Pick<Result, "relevance">): number {
  return relevance.indexOf(relevance.reduce((a, b) => Math.max(a, b)));
}
