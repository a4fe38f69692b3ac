/** The page: a picture, a query, a map. Wires the parts together; holds what is chosen. */
import { Bundle, EdgekitError, type Runner, bench, clearCache, runtimeFiles } from "../src/index";
import { readAddress, writeAddress } from "./address";
import { Ask } from "./ask";
import { element } from "./element";
import { NAMES, difference, label, limitPrecisions, limitSwitches, limitViews, pill, pillRunning, showBench, showCheck, showInfo } from "./engine";
import { Findings, mostRelevant } from "./findings";
import { type Answered, Lane } from "./lane";
import { keepOffline, loaded } from "./offline";
import type { View } from "./paint";
import { Pictures } from "./pictures";
import { Stage } from "./stage";

const BASE = new URL("./", location.href.split(/[?#]/)[0]).href;
const LEGENDS: Readonly<Record<View, string>> = {
  heat: "1; outlined: what is kept",
  focus: "what is not relevant goes dark",
  tokens: "one dot for each token that a patch gets",
  picture: "the picture as it came",
};

let shown = readAddress(location.search);
let picture: ImageBitmap | undefined;
let latest: Answered | undefined;
let other: Answered | undefined;
/** What the running runner was asked to be: the switches go back to it when another choice fails. */
let stands: Pick<typeof shown, "device" | "dtype"> | undefined;

const notice = element("#notice", HTMLElement);
const stages = [new Stage(element("#stage-a", HTMLElement), look), new Stage(element("#stage-b", HTMLElement), look)] as const;
const findings = new Findings(look);
const ask = new Ask((query) => {
  remember({ query });
  question();
});
const lanes = [lane(stages[0], answered), lane(stages[1], compared)] as const;
const pictures = new Pictures((chosen) => {
  quiet();
  picture = chosen.picture;
  latest = other = undefined;
  look(undefined);
  for (const stage of stages) stage.show(chosen.picture);
  const query = chosen.query || ask.text;
  ask.text = query;
  remember({ sample: chosen.sample, query });
  question();
}, complain);

void start();

async function start(): Promise<void> {
  choose("view", shown.view);
  choose("device", shown.device);
  choose("dtype", shown.dtype);
  choose("compare", shown.compare);
  changeView();
  listen();
  const asked = shown.query;
  const ready = reload();
  void Bundle.open(BASE).then(({ manifest }) => {
    element("#model", HTMLElement).textContent = manifest.name;
    limitPrecisions(manifest);
    limitViews(manifest);
  }, () => undefined); // the lane says what is wrong
  await pictures.start(BASE, shown.sample).then((queries) => { ask.offer(queries); }, complain);
  if (asked) {
    ask.text = asked;
    remember({ query: asked });
    question();
  }
  await ready;
  await limitSwitches(lanes[0].runner?.bundle.manifest);
  if (shown.compare) compare();
}

function lane(stage: Stage, onanswer: (a: Answered) => void): Lane {
  return new Lane(BASE, {
    onload: (runner) => {
      if (stage === stages[0]) loadedFirst(runner);
    },
    onprogress: (share, text) => {
      stage.setProgress(share);
      if (stage === stages[0] && share !== undefined) pill(text, "loading");
    },
    onanswer,
    onerror: complain,
  });
}

/** Load what is chosen into the first lane. */
async function reload(): Promise<void> {
  const { device, dtype } = shown;
  const loaded = await lanes[0].load(device, dtype);
  if (loaded) stands = { device, dtype };
  const { runner } = lanes[0];
  if (loaded !== false || !stands || !runner) return;
  pillRunning(runner.info);
  remember(stands);
  choose("device", stands.device);
  choose("dtype", stands.dtype);
}

function loadedFirst(runner: Runner): void {
  quiet();
  showInfo(runner);
  if (runner.encoder) ask.know(runner.encoder);
  else if (takesQuery(runner)) {
    ask.mute("This model takes queries as vectors, which only the library can give.");
    lanes[0].drop();
  } else {
    ask.mute("This model takes pictures only.");
    question();
  }
  pillRunning(runner.info);
  runner.checked.then((report) => { if (report) showCheck(report); }, () => {
    if (lanes[0].runner === runner) question(); // this device no longer answers as it did: the next one takes over
  });
  void keepOffline(loaded(BASE, Object.values(runtimeFiles(runner.info.build, `${BASE}ort/`))));
}

function takesQuery({ bundle }: Runner): boolean {
  return bundle.manifest.inputs.some((input) => input.kind === "query");
}

function question(): void {
  const { runner } = lanes[0];
  const wordless = runner && !runner.encoder;
  if (!picture || (wordless ? takesQuery(runner) : ask.text === "")) return;
  const query = wordless ? "" : ask.text;
  for (const lane of shown.compare ? lanes : lanes.slice(0, 1)) lane.ask({ image: picture, query });
}

function answered(answer: Answered): void {
  const { question, result } = answer;
  if (question.image !== picture) return;
  quiet();
  latest = answer;
  const info = lanes[0].runner?.info;
  const best = mostRelevant(result);
  const where = `most relevant at row ${String(Math.floor(best / result.columns) + 1)}, column ${String((best % result.columns) + 1)}`;
  stages[0].answer(result, `Relevance map for “${question.query}”: ${where}`);
  painted(() => {
    if (latest === answer) findings.show(result, question.image);
  });
  if (!info || !lanes[0].runner) return;
  if (info.fallbacks.length > element("#fallbacks", HTMLElement).childElementCount) showInfo(lanes[0].runner);
  pillRunning(info, result.inference);
  stages[0].setCaption(shown.compare ? label(info, result.inference) : "");
  differ();
}

/** After the next frame: what is looked at first is painted first, and neither holds the page long. */
function painted(act: () => void): void {
  requestAnimationFrame(() => setTimeout(act));
}

function compared(answer: Answered): void {
  const { question, result } = answer;
  if (question.image !== picture) return;
  other = answer;
  const info = lanes[1].runner?.info;
  stages[1].answer(result, `Second relevance map for “${question.query}”`);
  if (info) stages[1].setCaption(label(info, result.inference));
  differ();
}

function differ(): void {
  const [a, b] = [lanes[0].runner?.info, lanes[1].runner?.info];
  const line = element("#difference", HTMLElement);
  const same = latest?.question.query === other?.question.query;
  line.textContent =
    latest && other && a && b && same
      ? difference(latest.result, other.result, [NAMES[a.dtype] ?? "", NAMES[b.dtype] ?? ""])
      : "Comparing";
}

function compare(): void {
  const on = shown.compare !== "";
  document.body.toggleAttribute("data-compare", on);
  stages[1].hidden = !on;
  element("#difference", HTMLElement).hidden = !on;
  element("#difference", HTMLElement).textContent = on ? "Comparing" : "";
  other = undefined;
  if (!on) {
    stages[0].setCaption("");
    lanes[1].close();
    return;
  }
  if (picture) stages[1].show(picture);
  void lanes[1].load(shown.device, shown.compare as "fp32");
  question();
}

function look(patch: number | undefined): void {
  for (const stage of stages) stage.setCursor(patch);
  findings.look(patch, document.activeElement === stages[0].canvas || document.activeElement === stages[1].canvas);
}

function changeView(): void {
  for (const stage of stages) stage.setView(shown.view);
  element("#legend", HTMLElement).textContent = LEGENDS[shown.view];
  element("#ramp", HTMLElement).hidden = shown.view !== "heat";
}

function listen(): void {
  on("views", (value) => {
    remember({ view: value as View });
    changeView();
  });
  on("device", (value) => {
    remember({ device: value as "auto" });
    void reload();
    if (shown.compare) compare();
  });
  on("dtype", (value) => {
    remember({ dtype: value as "auto" });
    void reload();
  });
  on("compare", (value) => {
    remember({ compare: value });
    compare();
  });
  press("again", async (runner) => {
    showCheck(await runner.selfTest());
  });
  press("measure", async (runner) => {
    const query = latest?.question.query ?? runner.encoder?.words[0];
    if (picture) showBench(await bench(runner, { image: picture, ...(query ? { query } : {}) }));
  });
  press("forget", async () => {
    const count = await clearCache(BASE);
    element("#measured", HTMLElement).textContent = `${String(count)} stored ${count === 1 ? "model" : "models"} removed; the next visit downloads anew.`;
  });
  element("#share", HTMLButtonElement).addEventListener("click", () => {
    void navigator.clipboard.writeText(location.href).then(
      () => (element("#measured", HTMLElement).textContent = shown.sample ? "Link copied." : "Link copied; it cannot carry your own picture."),
      () => (element("#measured", HTMLElement).textContent = location.href),
    );
  });
  element("button", HTMLButtonElement, notice).addEventListener("click", () => {
    notice.hidden = true;
  });
}

/** A button that needs a runner, is off while it works, and complains for it. */
function press(id: string, act: (runner: Runner) => Promise<void>): void {
  const button = element(`#${id}`, HTMLButtonElement);
  button.addEventListener("click", () => {
    const { runner } = lanes[0];
    if (!runner) return;
    button.disabled = true;
    act(runner).catch(complain).finally(() => (button.disabled = false));
  });
}

function on(group: string, change: (value: string) => void): void {
  element(`#${group}`, HTMLFieldSetElement).addEventListener("change", (event) => {
    if (event.target instanceof HTMLInputElement) change(event.target.value);
  });
}

function choose(name: string, value: string): void {
  for (const input of document.querySelectorAll<HTMLInputElement>(`input[name="${name}"]`)) input.checked = input.value === value;
}

function remember(change: Partial<typeof shown>): void {
  shown = { ...shown, ...change };
  history.replaceState(null, "", writeAddress(shown) || location.pathname);
}

function complain(error: unknown): void {
  const text = error instanceof Error ? error.message : String(error);
  if (error instanceof EdgekitError && error.code === "QUERY") {
    ask.say(); // said beside the field
    if (!latest) findings.clear();
    return;
  }
  const said = text.startsWith("http") ? text : `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
  element("p", HTMLElement, notice).textContent = `${said}.`;
  notice.hidden = false;
  if (!lanes[0].runner) pill("Not running", "bad");
}

/** What worked answers what went wrong before; but a page without a runner keeps saying why. */
function quiet(): void {
  if (lanes[0].runner) notice.hidden = true;
}
