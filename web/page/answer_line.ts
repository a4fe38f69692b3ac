/** AnswerLine: a result in one sentence, for everybody to read and for screen readers to say: what was found, and where. */
import { type ScoreMap, answerSentence } from "./answer_words";
import { element } from "./dom";

const line = element("#answer-line", HTMLElement);

/** Show the sentence of a result. */
export function showAnswerLine(result: ScoreMap, query: string, threshold: number | null): void {
  line.toggleAttribute("data-absent", result.present === false);
  line.textContent = answerSentence(result, query, threshold);
}

/** Show nothing, or why there is no result. */
export function clearAnswerLine(reason = ""): void {
  line.removeAttribute("data-absent");
  line.textContent = reason;
}
