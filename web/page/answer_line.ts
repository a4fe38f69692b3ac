/** AnswerLine: a result in one sentence, for everybody to read and for screen readers to say: what was found, and where. */
import { type ScoreMap, answerSentence } from "./answer_words";
import { element } from "./dom";

const line = element("#answer-line", HTMLElement);
const why = element("#answer-reason", HTMLElement);

/** Show the sentence of a result, and return it. @param reason - Why nothing may have been found; shown only then. */
export function showAnswerLine(result: ScoreMap, query: string, threshold: number | null, reason: string): string {
  line.toggleAttribute("data-absent", result.present === false);
  line.textContent = answerSentence(result, query, threshold);
  showReason(result.present === false ? reason : "");
  return line.textContent;
}

/** Show nothing, or why there is no result. */
export function clearAnswerLine(reason = ""): void {
  line.removeAttribute("data-absent");
  line.textContent = reason;
  showReason("");
}

function showReason(reason: string): void {
  why.hidden = reason === "";
  why.textContent = reason;
}
