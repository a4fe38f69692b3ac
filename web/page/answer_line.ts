/** AnswerLine: a result in one sentence, for everybody to read and for screen readers to say: what was found, and where. */
import type { Result } from "../src/index";
import { areaOf } from "./area";
import { element } from "./dom";

const line = element("#answer-line", HTMLElement);

type Map = Pick<Result, "rows" | "columns" | "relevance" | "present">;

/** Show the sentence of a result. */
export function showAnswerLine(result: Map, query: string, threshold: number | null): void {
  line.toggleAttribute("data-absent", result.present === false);
  line.textContent = answerSentence(result, query, threshold);
}

/** Show nothing, or why there is no result. */
export function clearAnswerLine(reason = ""): void {
  line.removeAttribute("data-absent");
  line.textContent = reason;
}

/** What was found for a query and where; without a threshold, which patch fits best. */
export function answerSentence({ rows, columns, relevance, present }: Map, query: string, threshold: number | null): string {
  const highest = relevance[mostRelevant({ relevance })] ?? 0;
  if (present === false) {
    return `Nothing like “${query}” here: the highest relevance is ${highest.toFixed(2)}, below ${(threshold ?? 0).toFixed(2)}.`;
  }
  const asked = query === "" ? "" : ` “${query}”`;
  return `${present ? `Found${asked}` : `Closest to${asked || " the query"}`}: ${bestPlace({ rows, columns, relevance })}, relevance ${highest.toFixed(2)}.`;
}

/** Where the most relevant patch is: "top left (row 2, column 3)". */
export function bestPlace({ rows, columns, relevance }: Omit<Map, "present">): string {
  const best = mostRelevant({ relevance });
  const [row, column] = [Math.floor(best / columns), best % columns];
  return `${areaOf(row, column, rows, columns)} (row ${String(row + 1)}, column ${String(column + 1)})`;
}

/** The patch with the highest score. */
export function mostRelevant({ relevance }: Pick<Result, "relevance">): number {
  return relevance.indexOf(relevance.reduce((a, b) => Math.max(a, b)));
}
