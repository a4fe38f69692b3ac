/** AnswerView: the answer to one request everywhere it stands: the map, the sentence, the numbers, the other outputs. */
import type { Runner } from "../src/index";
import { clearAnswerLine, showAnswerLine } from "./answer_line";
import { AnswerPanel } from "./answer_panel";
import { bestPlace, cutWords } from "./answer_words";
import { setRunningStatus, showInfo } from "./device_panel";
import { element } from "./dom";
import type { View } from "./map_renderer";
import { MapView } from "./map_view";
import { ResultPanel } from "./result_panel";
import type { InferenceResult } from "./runner_slot";

const DESCRIBED = 400; // ms between two descriptions of a live picture
const LEGENDS: Readonly<Record<View, string>> = {
  heat: "1",
  focus: "low relevance darkened",
  tokens: "one dot per token of a patch",
  picture: "the original picture",
};

export class AnswerView {
  /** The map, and the one that it is compared with. */
  readonly maps = [this.mapView("#map-a"), this.mapView("#map-b")] as const;
  /** What is shown; undefined where the picture has no answer. */
  shown: InferenceResult | undefined;
  readonly answers = new AnswerPanel((layer) => { this.map.showLayer(layer); });
  private readonly numbers = new ResultPanel((patch) => { this.selectPatch(patch); });
  /** Why a query may not be found in the picture that is shown. */
  reasonOfMiss: (query: string) => string = () => "";
  private describedAt = -Infinity;
  private described: InferenceResult | undefined;

  get map(): MapView {
    return this.maps[0];
  }

  /** Show an answer, and say it in words. */
  show(inference: InferenceResult, runner: Runner): void {
    this.draw(inference, runner, false);
    this.describe(inference, runner);
  }

  /** Show a frame of a live picture with its own answer. @returns Its sentence, where it was described too. */
  showFrame(inference: InferenceResult, runner: Runner): string | undefined {
    this.draw(inference, runner, true);
    if (performance.now() - this.describedAt < DESCRIBED) return undefined;
    return this.describe(inference, runner);
  }

  /** Say an answer in words and numbers. @returns Its sentence. */
  describe(inference: InferenceResult, runner: Runner): string {
    const { request, result } = inference;
    this.describedAt = performance.now();
    this.described = inference;
    setRunningStatus(runner.info, result.inference);
    if (runner.info.fallbacks.length > element("#fallbacks", HTMLElement).childElementCount) showInfo(runner);
    if (result.relevance.length === 0) {
      this.map.label = "The picture";
      return element("#answers-live", HTMLElement).textContent;
    }
    const where = result.present === false ? "nothing like this here" : `most relevant at the ${bestPlace(result)}`;
    this.map.label = `Relevance map for “${cutWords(request.query)}”: ${where}`;
    element("#patch-count", HTMLElement).textContent = `, ${String(result.rows)} rows of ${String(result.columns)}`;
    const { threshold } = runner;
    if (threshold !== null) element("#outlined", HTMLElement).textContent = `those of ${threshold.toFixed(2)} or more, which count as found`;
    afterNextFrame(() => {
      if (this.described === inference) this.numbers.show(result, request.image, threshold);
    });
    return showAnswerLine(result, request.query, threshold, this.reasonOfMiss(request.query));
  }

  /** Whether a picture stands anywhere: it must not be released then. */
  shows(picture: ImageBitmap): boolean {
    const shown = [this.map.shownPicture, this.shown?.request.image, this.described?.request.image];
    return shown.includes(picture) || this.numbers.shows(picture) || this.answers.shows(picture);
  }

  /** Show nothing of an earlier query or picture, or why there is no answer. */
  clear(reason = ""): void {
    this.shown = this.described = undefined;
    clearAnswerLine(reason);
    this.selectPatch(undefined);
  }

  clearNumbers(): void {
    this.numbers.clear();
  }

  setView(view: View): void {
    for (const map of this.maps) map.setView(view);
    element("#legend", HTMLElement).textContent = LEGENDS[view];
    element("#colormap", HTMLElement).hidden = view !== "heat";
  }

  private draw(inference: InferenceResult, runner: Runner, live: boolean): void {
    const { request, result } = inference;
    this.shown = inference;
    const scored = result.relevance.length > 0;
    if (live) this.map.showFrame(request.image, scored ? result : undefined, runner.threshold);
    else if (scored) this.map.showResult(result, runner.threshold);
    if (!scored) this.answers.show(result, runner.bundle.manifest, request.image, runner.fittingSize(request.image));
  }

  private mapView(figure: string): MapView {
    return new MapView(element(figure, HTMLElement), (patch) => { this.selectPatch(patch); });
  }

  private selectPatch(patch: number | undefined): void {
    for (const map of this.maps) map.setCursor(patch);
    this.numbers.showPatch(patch, this.maps.some(({ canvas }) => canvas === document.activeElement));
  }
}

/** After the next frame, so that the map is painted first and no task of the main thread is long. */
function afterNextFrame(action: () => void): void {
  requestAnimationFrame(() => setTimeout(action));
}
