/** Main: connects the query field, the image picker, the runners and the views, and holds the state of the page. */
import { Bundle, EdgekitError, type Runner, clearCache } from "../src/index";
import { runtimeFiles } from "../src/session";
import { AnswerView } from "./answer_view";
import { cutWords } from "./answer_words";
import { addCodeActions, codeOf, showCode } from "./code_panel";
import { Comparison } from "./comparison";
import { checkRadio, onButton, onChoice } from "./controls";
import {
  backendLabel,
  disableMissingPrecisions,
  disableMissingViews,
  disableUnsupportedDevices,
  setRunningStatus,
  setStatus,
  showInfo,
  showMessage,
  showSelfTest,
} from "./device_panel";
import { element } from "./dom";
import { type ChosenImage, ImagePicker } from "./image_picker";
import { LiveBar } from "./live_bar";
import { LivePicture } from "./live_picture";
import type { View } from "./map_renderer";
import { Notice } from "./notice";
import { keepOffline, loadedUrls } from "./offline";
import { showPrecisions } from "./precision_panel";
import { measurePrecisions } from "./precisions";
import { describePage, describeWords, hasScores, needsQuery, takesPicture } from "./purpose";
import { QueryField } from "./query_field";
import { type InferenceResult, RunnerSlot } from "./runner_slot";
import { addResultActions, enableResultActions } from "./result_actions";
import { type Change, Steps } from "./steps";
import { TensorPage } from "./tensor_page";
import { parseUrlState } from "./url_state";

const BASE = new URL("./", location.href.split(/[?#]/)[0]).href;
/** Opened once: its manifest is fetched once. */
const bundle = Bundle.open(BASE);
let state = parseUrlState(location.search);
let picture: ImageBitmap | undefined;
/** The query that was asked last; undefined where it cannot be answered. */
let asked: string | undefined;
/** The options of the runner in use: the switches return to them when another choice fails to load. */
let runningChoice: Pick<typeof state, "device" | "dtype"> | undefined;

const notice = new Notice();
const view = new AnswerView();
const tensors = new TensorPage(view.answers, showError);
const steps = new Steps(onBack);
const queryField = new QueryField((query, change) => {
  imagePicker.overtake();
  updateState({ query }, query === "" || !picture ? "setting" : change);
  submitQuery();
}, (text) => {
  imagePicker.overtake();
  view.map.stale = text !== view.shown?.request.query && queryField.query !== view.shown?.request.query;
});
const slot = new RunnerSlot(bundle, {
  onload: onLoaded,
  onprogress: (share, text) => {
    view.map.setProgress(share);
    if (share !== undefined) setStatus(text, "loading");
  },
  onresult: onResult,
  onerror: showError,
});
const comparison = new Comparison(bundle, view.maps[1], showError);
const imagePicker = new ImagePicker(onImage, (file) => { live.startVideo(file, file.name).catch(showError); }, showError);
const liveBar = new LiveBar(() => { live.stop(); });
const live = new LivePicture({
  onframe: showFrame,
  onrate: (rate) => { liveBar.showRate(rate); },
  onstart: onLiveStart,
  onstop: onLiveStop,
  onerror: showError,
  shows: (frame) => picture === frame || view.shows(frame),
});

void start();

async function start(): Promise<void> {
  for (const group of ["view", "device", "dtype", "compare"] as const) checkRadio(group, state[group]);
  view.setView(state.view);
  view.reasonOfMiss = (query) => imagePicker.reasonOfMiss(query);
  addListeners();
  queryField.text = state.query;
  const loaded = reload();
  void bundle.then(({ manifest }) => {
    element("#model", HTMLElement).textContent = manifest.name;
    disableMissingPrecisions(manifest);
    disableMissingViews(manifest);
    describePage(manifest);
  }, () => undefined); // the runner slot reports the error
  await imagePicker.start(BASE, state.sample, state.query).catch(showError);
  await loaded;
  await disableUnsupportedDevices(slot.runner?.bundle.manifest);
  updateComparison();
  await slot.idle(); // the first answer, if there is one
  imagePicker.showTiles();
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
  if (!takesPicture(runner.bundle)) {
    tensors.open(runner).catch(showError);
  } else if (runner.encoder) {
    queryField.setEncoder(runner.encoder);
    describeWords(runner.encoder);
  } else if (needsQuery(runner.bundle)) {
    queryField.disable("This model needs a query vector, which this page cannot create: use the library instead.");
    slot.clearRequests();
  } else {
    queryField.disable("This model takes no query.");
    submitQuery();
  }
  setRunningStatus(runner.info);
  runner.checked.then((report) => { if (report) showSelfTest(report); }, () => {
    if (slot.runner !== runner) return;
    // The deferred self-test failed: the next run falls back.
    if (takesPicture(runner.bundle)) submitQuery();
    else tensors.open(runner).catch(showError);
  });
  const runtime = Object.values(runtimeFiles(runner.info.build, `${BASE}ort/`));
  void slot.idle().then(() => keepOffline(loadedUrls(BASE, runtime))); // after the first answer
}

function onImage(chosen: ChosenImage): void {
  hideError();
  live.stop();
  const change = picture ? "step" : "setting"; // the first one is where the history begins
  picture = chosen.picture;
  asked = undefined;
  view.clear();
  view.map.showPicture(chosen.picture);
  comparison.showPicture(chosen.picture);
  const query = chosen.query || queryField.text;
  if (query !== queryField.text) queryField.text = query;
  queryField.setExamples(chosen.examples);
  updateState({ sample: chosen.sample, query }, change);
  steps.keep(chosen.sample === "" ? chosen.picture : undefined);
  enableResultActions(false);
  updateCode();
  submitQuery();
}

/** Show what was asked in another step. */
function onBack({ sample, query }: typeof state, own: ImageBitmap | undefined): void {
  live.stop();
  const shown = sample === "" ? own === picture : imagePicker.shows(sample);
  updateState({ sample, query });
  if (!shown && sample !== "") void imagePicker.choose(sample, query);
  else if (!shown && own) {
    imagePicker.leave();
    onImage({ picture: own, sample: "", query, examples: { queries: [] } });
  } else {
    if (!shown) notice.show("the picture of that step was yours, and is not kept: open it again");
    imagePicker.keep();
    queryField.text = query;
    submitQuery();
  }
}

/** The code that asks what is asked here. */
function updateCode(): void {
  void bundle.then(({ manifest }) => {
    if (!takesPicture({ manifest })) return; // the page of tensors has its own
    const query = needsQuery({ manifest }) ? queryField.query : "";
    showCode(codeOf(BASE, { image: imagePicker.address, query }, hasScores(manifest)));
  }, () => undefined); // the runner slot reports the error
}

function onLiveStart(): void {
  hideError();
  imagePicker.leave();
  asked = undefined;
  view.clear();
  updateState({ sample: "" });
  if (state.compare) endComparison();
  liveBar.show();
}

/** The frame that is shown becomes the picture. */
function onLiveStop(): void {
  liveBar.hide();
  slot.clearRequests();
  picture = view.map.shownPicture;
  if (picture) comparison.showPicture(picture);
  if (view.shown && slot.runner) view.describe(view.shown, slot.runner);
  else submitQuery();
}

/** Show a frame with its answer, or alone where there is none. */
async function showFrame(frame: ImageBitmap): Promise<boolean> {
  const query = answerableQuery();
  picture = frame;
  if (query === undefined) {
    view.shown = undefined;
    view.map.showFrame(frame);
    return false;
  }
  asked = query;
  slot.submit({ image: frame, query });
  await slot.idle();
  return view.shown?.request.image === frame;
}

/** What the model can be asked now: undefined where it cannot; "" for a model without queries. */
function answerableQuery(): string | undefined {
  const { runner } = slot;
  if (!runner?.encoder) return runner && !needsQuery(runner.bundle) && takesPicture(runner.bundle) ? "" : undefined;
  const query = queryField.query;
  return query !== "" && runner.encoder.unknown(query).length === 0 ? query : undefined;
}

function submitQuery(): void {
  const { runner } = slot;
  const withoutWords = runner && !runner.encoder;
  if (!picture || (runner && !takesPicture(runner.bundle)) || (withoutWords && needsQuery(runner.bundle))) return;
  const query = withoutWords ? "" : queryField.query;
  if (!withoutWords && query === "") {
    if (runner) showNoAnswer("Type a word, or choose one below the field.");
    return;
  }
  asked = query;
  slot.submit({ image: picture, query, vector: imagePicker.vectorOf(query) });
  if (state.compare) comparison.submit({ image: picture, query });
}

/** A query without an answer: the map of an earlier one must not stand under it. */
function showNoAnswer(reason: string): void {
  asked = undefined;
  enableResultActions(false);
  view.clear(reason);
  slot.clearRequests();
  if (picture && !live.on) view.map.showPicture(picture);
  comparison.clear();
  view.clearNumbers();
}

function onResult(inference: InferenceResult): void {
  const { request } = inference;
  const { runner } = slot;
  if (request.image !== picture || request.query !== asked || !runner) return;
  hideError();
  if (live.on) {
    const said = view.showFrame(inference, runner);
    if (said !== undefined) liveBar.say(said);
    return;
  }
  view.show(inference, runner);
  enableResultActions(true);
  updateCode();
  view.map.setCaption(state.compare ? backendLabel(runner.info, inference.result.inference) : "");
  comparison.showFirst(inference, runner.info);
}

function updateComparison(): void {
  if (state.compare) live.stop();
  comparison.choose(state.compare as "" | "fp32", state.device);
  if (state.compare === "") view.map.setCaption("");
  else submitQuery();
}

function endComparison(): void {
  updateState({ compare: "" });
  checkRadio("compare", "");
  updateComparison();
}

function addListeners(): void {
  onChoice("views", (value) => {
    updateState({ view: value as View });
    view.setView(state.view);
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
  element("#start-camera", HTMLButtonElement).addEventListener("click", () => { live.toggleCamera().catch(showError); });
  onButton("test-again", async () => {
    const report = await slot.runner?.selfTest();
    if (report) showSelfTest(report);
  }, showError);
  onButton("measure-precisions", measure, showError);
  onButton("clear-cache", async () => {
    const count = await clearCache(await bundle);
    showMessage(`${String(count)} stored ${count === 1 ? "model" : "models"} removed. The next visit downloads the model again.`);
  }, showError);
  addCodeActions(showError);
  addResultActions(view.map, () => view.shown && slot.runner && { inference: view.shown, runner: slot.runner }, () => state.sample === "", showError);
}

async function measure(): Promise<void> {
  live.stop();
  const { runner } = slot;
  const image = picture;
  if (!runner || !image) return;
  const query = view.shown?.request.query ?? runner.encoder?.words[0];
  const input = { image, size: runner.fittingSize(image), ...(query ? { query } : {}) };
  showMessage(showPrecisions(await measurePrecisions(runner.bundle, input, state.device, showMessage)));
}

function updateState(changed: Partial<typeof state>, change: Change = "setting"): void {
  state = { ...state, ...changed };
  steps.write(state, change);
}

function showError(error: unknown): void {
  const text = error instanceof Error ? error.message : String(error);
  if (error instanceof EdgekitError && error.code === "QUERY") {
    queryField.updateStatus(); // its buttons stand beside the field
    showNoAnswer(`No answer: ${cutWords(text.split(":")[0] ?? text)}.`);
    return;
  }
  notice.show(text);
  if (!slot.runner) setStatus("Not running", "bad");
}

/** Hide the error after something succeeded; a page without a runner keeps showing it. */
function hideError(): void {
  if (slot.runner) notice.hide();
}
