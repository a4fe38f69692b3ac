/** Main: connects the query field, the image picker, the runners and the views, and holds the state of the page. */
import { Bundle, EdgekitError, type Runner, bench, clearCache, runtimeFiles } from "../src/index";
import { hasScores, showAnswers } from "./answer_panel";
import { checkRadio, onButton, onChoice } from "./controls";
import {
  DISPLAY_NAMES,
  backendLabel,
  describeDifference,
  disableMissingPrecisions,
  disableMissingViews,
  disableUnsupportedDevices,
  setRunningStatus,
  setStatus,
  showBench,
  showInfo,
  showMessage,
  showSelfTest,
} from "./device_panel";
import { element } from "./dom";
import { type ChosenImage, ImagePicker } from "./image_picker";
import type { View } from "./map_renderer";
import { MapView } from "./map_view";
import { keepOffline, loadedUrls } from "./offline";
import { QueryField } from "./query_field";
import { ResultPanel, mostRelevant } from "./result_panel";
import { type InferenceResult, RunnerSlot } from "./runner_slot";
import { formatUrlState, parseUrlState } from "./url_state";

const BASE = new URL("./", location.href.split(/[?#]/)[0]).href;
const LEGENDS: Readonly<Record<View, string>> = {
  heat: "1; selection outlined",
  focus: "low relevance darkened",
  tokens: "one dot per token of a patch",
  picture: "the original picture",
};

let state = parseUrlState(location.search);
let picture: ImageBitmap | undefined;
let firstResult: InferenceResult | undefined;
let secondResult: InferenceResult | undefined;
/** The options of the runner in use: the switches return to them when another choice fails to load. */
let runningChoice: Pick<typeof state, "device" | "dtype"> | undefined;

const notice = element("#notice", HTMLElement);
const presenceLine = element("#presence", HTMLElement);
const differenceLine = element("#difference", HTMLElement);
const mapViews = [new MapView(element("#map-a", HTMLElement), selectPatch), new MapView(element("#map-b", HTMLElement), selectPatch)] as const;
const resultPanel = new ResultPanel(selectPatch);
const queryField = new QueryField((query) => {
  updateState({ query });
  submitQuery();
});
const slots = [createSlot(mapViews[0], onFirstResult), createSlot(mapViews[1], onSecondResult)] as const;
const imagePicker = new ImagePicker(onImage, showError);

void start();

async function start(): Promise<void> {
  for (const group of ["view", "device", "dtype", "compare"] as const) checkRadio(group, state[group]);
  applyView();
  addListeners();
  const requestedQuery = state.query;
  const loaded = reload();
  void Bundle.open(BASE).then(({ manifest }) => {
    element("#model", HTMLElement).textContent = manifest.name;
    disableMissingPrecisions(manifest);
    disableMissingViews(manifest);
    document.body.toggleAttribute("data-no-scores", !hasScores(manifest));
    document.body.toggleAttribute("data-no-query", !needsQuery({ manifest }));
  }, () => undefined); // the runner slot reports the error
  await imagePicker.start(BASE, state.sample).then((queries) => { queryField.setExamples(queries); }, showError);
  if (requestedQuery) {
    queryField.text = requestedQuery;
    updateState({ query: requestedQuery });
    submitQuery();
  }
  await loaded;
  await disableUnsupportedDevices(slots[0].runner?.bundle.manifest);
  if (state.compare) updateComparison();
}

function createSlot(mapView: MapView, onresult: (result: InferenceResult) => void): RunnerSlot {
  return new RunnerSlot(BASE, {
    onload: (runner) => {
      if (mapView === mapViews[0]) onFirstLoaded(runner);
    },
    onprogress: (share, text) => {
      mapView.setProgress(share);
      if (mapView === mapViews[0] && share !== undefined) setStatus(text, "loading");
    },
    onresult,
    onerror: showError,
  });
}

/** Load the chosen device and precision into the first slot. */
async function reload(): Promise<void> {
  const { device, dtype } = state;
  const loaded = await slots[0].load(device, dtype);
  if (loaded) runningChoice = { device, dtype };
  const { runner } = slots[0];
  if (loaded !== false || !runningChoice || !runner) return;
  setRunningStatus(runner.info);
  updateState(runningChoice);
  checkRadio("device", runningChoice.device);
  checkRadio("dtype", runningChoice.dtype);
}

function onFirstLoaded(runner: Runner): void {
  hideError();
  showInfo(runner);
  if (runner.encoder) queryField.setEncoder(runner.encoder);
  else if (needsQuery(runner.bundle)) {
    queryField.disable("This model needs a query vector, which this page cannot create: use the library instead.");
    slots[0].clearRequests();
  } else {
    queryField.disable("This model takes no query.");
    submitQuery();
  }
  setRunningStatus(runner.info);
  runner.checked.then((report) => { if (report) showSelfTest(report); }, () => {
    if (slots[0].runner === runner) submitQuery(); // the deferred self-test failed: the next run falls back
  });
  void keepOffline(loadedUrls(BASE, Object.values(runtimeFiles(runner.info.build, `${BASE}ort/`))));
}

function needsQuery({ manifest }: Pick<Bundle, "manifest">): boolean {
  return manifest.inputs.some((input) => input.kind === "query");
}

function onImage(chosen: ChosenImage): void {
  hideError();
  picture = chosen.picture;
  firstResult = secondResult = undefined;
  presenceLine.hidden = true;
  selectPatch(undefined);
  for (const view of mapViews) view.showPicture(chosen.picture);
  const query = chosen.query || queryField.text;
  queryField.text = query;
  updateState({ sample: chosen.sample, query });
  submitQuery();
}

function submitQuery(): void {
  const { runner } = slots[0];
  const withoutWords = runner && !runner.encoder;
  if (!picture || (withoutWords ? needsQuery(runner.bundle) : queryField.text === "")) return;
  const query = withoutWords ? "" : queryField.text;
  for (const slot of state.compare ? slots : slots.slice(0, 1)) slot.submit({ image: picture, query });
}

function onFirstResult(inference: InferenceResult): void {
  const { request, result } = inference;
  if (request.image !== picture) return;
  hideError();
  firstResult = inference;
  const info = slots[0].runner?.info;
  if (slots[0].runner && result.relevance.length === 0) {
    showAnswer(inference, slots[0].runner);
    return;
  }
  const best = mostRelevant(result);
  const where = `most relevant at row ${String(Math.floor(best / result.columns) + 1)}, column ${String((best % result.columns) + 1)}`;
  const absent = result.present === false;
  mapViews[0].showResult(result, `Relevance map for “${request.query}”: ${absent ? "nothing like this here" : where}`);
  presenceLine.hidden = !absent;
  presenceLine.textContent = absent ? describeAbsence(request.query, result.relevance[best] ?? 0, slots[0].runner?.threshold ?? 0) : "";
  afterNextFrame(() => {
    if (firstResult === inference) resultPanel.show(result, request.image);
  });
  if (!info || !slots[0].runner) return;
  if (info.fallbacks.length > element("#fallbacks", HTMLElement).childElementCount) showInfo(slots[0].runner);
  setRunningStatus(info, result.inference);
  mapViews[0].setCaption(state.compare ? backendLabel(info, result.inference) : "");
  updateDifference();
}

/** The answer of a model without scores of patches: no map, but its outputs. */
function showAnswer({ result }: InferenceResult, runner: Runner): void {
  element(".answers", HTMLElement).hidden = false;
  element("#answers-live", HTMLElement).textContent = showAnswers(result, runner.bundle.manifest);
  mapViews[0].canvas.setAttribute("aria-label", "The picture");
  setRunningStatus(runner.info, result.inference);
}

function describeAbsence(query: string, highest: number, threshold: number): string {
  return `Nothing like “${query}” here: the highest relevance is ${highest.toFixed(2)}, below ${threshold.toFixed(2)}.`;
}

/** After the next frame, so that the map is painted first and no task of the main thread is long. */
function afterNextFrame(action: () => void): void {
  requestAnimationFrame(() => setTimeout(action));
}

function onSecondResult(inference: InferenceResult): void {
  const { request, result } = inference;
  if (request.image !== picture) return;
  secondResult = inference;
  const info = slots[1].runner?.info;
  if (result.relevance.length === 0) return;
  mapViews[1].showResult(result, `Second relevance map for “${request.query}”`);
  if (info) mapViews[1].setCaption(backendLabel(info, result.inference));
  updateDifference();
}

/** Compare the two results, where both are for the same query. */
function updateDifference(): void {
  const [a, b] = [slots[0].runner?.info, slots[1].runner?.info];
  const sameQuery = firstResult?.request.query === secondResult?.request.query;
  differenceLine.textContent =
    firstResult && secondResult && a && b && sameQuery
      ? describeDifference(firstResult.result, secondResult.result, [DISPLAY_NAMES[a.dtype] ?? "", DISPLAY_NAMES[b.dtype] ?? ""])
      : "Comparing";
}

function updateComparison(): void {
  const on = state.compare !== "";
  document.body.toggleAttribute("data-compare", on);
  mapViews[1].hidden = !on;
  differenceLine.hidden = !on;
  differenceLine.textContent = on ? "Comparing" : "";
  secondResult = undefined;
  if (!on) {
    mapViews[0].setCaption("");
    slots[1].close();
    return;
  }
  if (picture) mapViews[1].showPicture(picture);
  void slots[1].load(state.device, state.compare as "fp32");
  submitQuery();
}

function selectPatch(patch: number | undefined): void {
  for (const view of mapViews) view.setCursor(patch);
  resultPanel.showPatch(patch, mapViews.some(({ canvas }) => canvas === document.activeElement));
}

function applyView(): void {
  for (const view of mapViews) view.setView(state.view);
  element("#legend", HTMLElement).textContent = LEGENDS[state.view];
  element("#colormap", HTMLElement).hidden = state.view !== "heat";
}

function addListeners(): void {
  onChoice("views", (value) => {
    updateState({ view: value as View });
    applyView();
  });
  onChoice("device", (value) => {
    updateState({ device: value as "auto" });
    void reload();
    if (state.compare) updateComparison();
  });
  onChoice("dtype", (value) => {
    updateState({ dtype: value as "auto" });
    void reload();
  });
  onChoice("compare", (value) => {
    updateState({ compare: value });
    updateComparison();
  });
  onButton("test-again", async () => {
    const report = await slots[0].runner?.selfTest();
    if (report) showSelfTest(report);
  }, showError);
  onButton("measure-speed", measureSpeed, showError);
  onButton("clear-cache", async () => {
    const count = await clearCache(BASE);
    showMessage(`${String(count)} stored ${count === 1 ? "model" : "models"} removed. The next visit downloads the model again.`);
  }, showError);
  element("#copy-link", HTMLButtonElement).addEventListener("click", () => void copyLink());
  element("button", HTMLButtonElement, notice).addEventListener("click", () => {
    notice.hidden = true;
  });
}

async function measureSpeed(): Promise<void> {
  const { runner } = slots[0];
  if (!runner || !picture) return;
  const query = firstResult?.request.query ?? runner.encoder?.words[0];
  showBench(await bench(runner, { image: picture, ...(query ? { query } : {}) }));
}

/** Copy the page's URL, or show it where there is no clipboard. */
async function copyLink(): Promise<void> {
  try {
    await navigator.clipboard.writeText(location.href);
    showMessage(state.sample ? "Link copied." : "Link copied. It does not contain your own picture.");
  } catch {
    showMessage(location.href);
  }
}

function updateState(change: Partial<typeof state>): void {
  state = { ...state, ...change };
  history.replaceState(null, "", formatUrlState(state) || location.pathname);
}

function showError(error: unknown): void {
  const text = error instanceof Error ? error.message : String(error);
  if (error instanceof EdgekitError && error.code === "QUERY") {
    queryField.updateStatus(); // shown beside the field
    if (!firstResult) resultPanel.clear();
    return;
  }
  const sentence = text.startsWith("http") ? text : `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
  element("p", HTMLElement, notice).textContent = `${sentence}.`;
  notice.hidden = false;
  if (!slots[0].runner) setStatus("Not running", "bad");
}

/** Hide the error after something succeeded; a page without a runner keeps showing it. */
function hideError(): void {
  if (slots[0].runner) notice.hidden = true;
}
