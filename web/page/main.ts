/** Main: connects the query field, the image picker, the runners and the views, and holds the state of the page. */
import { Bundle, EdgekitError, type Runner, bench, clearCache } from "../src/index";
import { runtimeFiles } from "../src/session";
import { clearAnswerLine, showAnswerLine } from "./answer_line";
import { bestPlace } from "./answer_words";
import { AnswerPanel } from "./answer_panel";
import { Comparison } from "./comparison";
import { checkRadio, onButton, onChoice } from "./controls";
import {
  backendLabel,
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
import { describePage, needsQuery, takesPicture } from "./purpose";
import { QueryField } from "./query_field";
import { ResultPanel } from "./result_panel";
import { type InferenceResult, RunnerSlot } from "./runner_slot";
import { shareLink } from "./share";
import { formatUrlState, parseUrlState } from "./url_state";

const BASE = new URL("./", location.href.split(/[?#]/)[0]).href;
const LEGENDS: Readonly<Record<View, string>> = {
  heat: "1; selection outlined",
  focus: "low relevance darkened",
  tokens: "one dot per token of a patch",
  picture: "the original picture",
};

/** Opened once: its manifest is fetched once. */
const bundle = Bundle.open(BASE);
let state = parseUrlState(location.search);
let picture: ImageBitmap | undefined;
let shown: InferenceResult | undefined;
/** The query that was asked last; undefined where it cannot be answered. */
let asked: string | undefined;
/** The options of the runner in use: the switches return to them when another choice fails to load. */
let runningChoice: Pick<typeof state, "device" | "dtype"> | undefined;

const notice = element("#notice", HTMLElement);
const mapViews = [new MapView(element("#map-a", HTMLElement), selectPatch), new MapView(element("#map-b", HTMLElement), selectPatch)] as const;
const answerPanel = new AnswerPanel((layer) => { mapViews[0].showLayer(layer); });
const resultPanel = new ResultPanel(selectPatch);
const queryField = new QueryField((query) => {
  updateState({ query });
  submitQuery();
}, (text) => {
  mapViews[0].stale = text !== shown?.request.query;
});
const slot = createSlot(mapViews[0]);
const comparison = new Comparison(bundle, mapViews[1], showError);
const imagePicker = new ImagePicker(onImage, showError);

void start();

async function start(): Promise<void> {
  for (const group of ["view", "device", "dtype", "compare"] as const) checkRadio(group, state[group]);
  applyView();
  addListeners();
  const requestedQuery = state.query;
  const loaded = reload();
  void bundle.then(({ manifest }) => {
    element("#model", HTMLElement).textContent = manifest.name;
    disableMissingPrecisions(manifest);
    disableMissingViews(manifest);
    describePage(manifest);
  }, () => undefined); // the runner slot reports the error
  await imagePicker.start(BASE, state.sample).then((queries) => { queryField.setExamples(queries); }, showError);
  if (requestedQuery) {
    queryField.text = requestedQuery;
    updateState({ query: requestedQuery });
    submitQuery();
  }
  await loaded;
  await disableUnsupportedDevices(slot.runner?.bundle.manifest);
  updateComparison();
}

function createSlot(mapView: MapView): RunnerSlot {
  return new RunnerSlot(bundle, {
    onload: onLoaded,
    onprogress: (share, text) => {
      mapView.setProgress(share);
      if (share !== undefined) setStatus(text, "loading");
    },
    onresult: onResult,
    onerror: showError,
  });
}

/** Load the chosen device and precision into the first slot. */
async function reload(): Promise<void> {
  const { device, dtype } = state;
  const loaded = await slot.load(device, dtype);
  if (loaded) runningChoice = { device, dtype };
  const { runner } = slot;
  if (loaded !== false || !runningChoice || !runner) return;
  setRunningStatus(runner.info);
  updateState(runningChoice);
  checkRadio("device", runningChoice.device);
  checkRadio("dtype", runningChoice.dtype);
}

function onLoaded(runner: Runner): void {
  hideError();
  showInfo(runner);
  if (runner.encoder) queryField.setEncoder(runner.encoder);
  else if (needsQuery(runner.bundle)) {
    queryField.disable("This model needs a query vector, which this page cannot create: use the library instead.");
    slot.clearRequests();
  } else {
    queryField.disable("This model takes no query.");
    submitQuery();
  }
  setRunningStatus(runner.info);
  runner.checked.then((report) => { if (report) showSelfTest(report); }, () => {
    if (slot.runner === runner) submitQuery(); // the deferred self-test failed: the next run falls back
  });
  void keepOffline(loadedUrls(BASE, Object.values(runtimeFiles(runner.info.build, `${BASE}ort/`))));
}

function onImage(chosen: ChosenImage): void {
  hideError();
  picture = chosen.picture;
  clearResult();
  mapViews[0].showPicture(chosen.picture);
  comparison.showPicture(chosen.picture);
  const query = chosen.query || queryField.text;
  queryField.text = query;
  updateState({ sample: chosen.sample, query });
  submitQuery();
}

/** Show nothing of an earlier query or picture. */
function clearResult(): void {
  shown = asked = undefined;
  clearAnswerLine();
  selectPatch(undefined);
}

function submitQuery(): void {
  const { runner } = slot;
  const withoutWords = runner && !runner.encoder;
  if (!picture || (withoutWords && (needsQuery(runner.bundle) || !takesPicture(runner.bundle)))) return;
  const query = withoutWords ? "" : queryField.text;
  if (!withoutWords && query === "") {
    if (runner) showNoAnswer("Type a word, or choose one below the field.");
    return;
  }
  asked = query;
  slot.submit({ image: picture, query });
  if (state.compare) comparison.submit({ image: picture, query });
}

/** A query without an answer: the map of an earlier one must not stand under it. */
function showNoAnswer(reason: string): void {
  clearResult();
  clearAnswerLine(reason);
  slot.clearRequests();
  if (picture) mapViews[0].showPicture(picture);
  comparison.clear();
  resultPanel.clear();
}

function onResult(inference: InferenceResult): void {
  const { request, result } = inference;
  const { runner } = slot;
  if (request.image !== picture || request.query !== asked || !runner) return;
  hideError();
  shown = inference;
  if (result.relevance.length === 0) {
    showAnswer(inference, runner);
    return;
  }
  showAnswerLine(result, request.query, runner.threshold);
  const where = result.present === false ? "nothing like this here" : `most relevant at the ${bestPlace(result)}`;
  mapViews[0].showResult(result, `Relevance map for “${request.query}”: ${where}`);
  element("#patch-count", HTMLElement).textContent = `, ${String(result.rows)} rows of ${String(result.columns)}`;
  afterNextFrame(() => {
    if (shown === inference) resultPanel.show(result, request.image);
  });
  if (runner.info.fallbacks.length > element("#fallbacks", HTMLElement).childElementCount) showInfo(runner);
  setRunningStatus(runner.info, result.inference);
  mapViews[0].setCaption(state.compare ? backendLabel(runner.info, result.inference) : "");
  comparison.showFirst(inference, runner.info);
}

/** The answer of a model without scores of patches: no map, but its outputs. */
function showAnswer({ request, result }: InferenceResult, runner: Runner): void {
  answerPanel.show(result, runner.bundle.manifest, request.image, runner.fittingSize(request.image));
  mapViews[0].canvas.setAttribute("aria-label", "The picture");
  setRunningStatus(runner.info, result.inference);
}

/** After the next frame, so that the map is painted first and no task of the main thread is long. */
function afterNextFrame(action: () => void): void {
  requestAnimationFrame(() => setTimeout(action));
}

function updateComparison(): void {
  comparison.choose(state.compare as "" | "fp32", state.device);
  if (state.compare === "") mapViews[0].setCaption("");
  else submitQuery();
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
    const report = await slot.runner?.selfTest();
    if (report) showSelfTest(report);
  }, showError);
  onButton("measure-speed", measureSpeed, showError);
  onButton("clear-cache", async () => {
    const count = await clearCache(await bundle);
    showMessage(`${String(count)} stored ${count === 1 ? "model" : "models"} removed. The next visit downloads the model again.`);
  }, showError);
  onButton("share", async () => { showMessage(await shareLink(state.sample === "")); }, showError);
  element("button", HTMLButtonElement, notice).addEventListener("click", () => {
    notice.hidden = true;
  });
}

async function measureSpeed(): Promise<void> {
  const { runner } = slot;
  if (!runner || !picture) return;
  const query = shown?.request.query ?? runner.encoder?.words[0];
  showBench(await bench(runner, { image: picture, ...(query ? { query } : {}) }));
}

function updateState(change: Partial<typeof state>): void {
  state = { ...state, ...change };
  history.replaceState(null, "", formatUrlState(state) || location.pathname);
}

function showError(error: unknown): void {
  const text = error instanceof Error ? error.message : String(error);
  if (error instanceof EdgekitError && error.code === "QUERY") {
    queryField.updateStatus(); // its buttons stand beside the field
    showNoAnswer(`No answer: ${text.split(":")[0] ?? text}.`);
    return;
  }
  const sentence = text.startsWith("http") ? text : `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
  element("p", HTMLElement, notice).textContent = `${sentence}.`;
  notice.hidden = false;
  if (!slot.runner) setStatus("Not running", "bad");
}

/** Hide the error after something succeeded; a page without a runner keeps showing it. */
function hideError(): void {
  if (slot.runner) notice.hidden = true;
}
