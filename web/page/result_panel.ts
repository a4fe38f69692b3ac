/** ResultPanel: one result in numbers: the tokens saved, the selected patch, the most relevant patches. */
import type { Result } from "../src/index";
import { mostRelevant } from "./answer_words";
import { context2d, fillDescriptionList, element, createElement } from "./dom";
import { patchBox } from "./map_renderer";
import { cssColour } from "./colormap";

const UNIFORM_BUDGET = 400; // tokens per patch of a uniform grid, the baseline of the savings
const MIN_BUDGET = 64;
const BARS = 24;
const TOP_PATCHES = 8; // patches shown as images

export class ResultPanel {
  private result: Result | undefined;
  private picture: ImageBitmap | undefined;
  private patch: number | undefined;
  private readonly ranks = new Map<number, number>();
  private readonly best = element("#top-patches", HTMLOListElement);

  /** @param onpatch - Called with the listed patch under the pointer or with the focus. */
  constructor(private readonly onpatch: (patch: number | undefined) => void) {}

  /** Remove what is shown, because it belongs to another picture. */
  clear(): void {
    this.result = this.picture = this.patch = undefined;
    element("#savings", HTMLElement).textContent = "–";
    element("#savings-detail", HTMLElement).textContent = `compared with ${String(UNIFORM_BUDGET)} tokens for every patch`;
    element("#patch-name", HTMLElement).textContent = "Patch";
    element("#top-share", HTMLElement).textContent = "";
    for (const id of ["#patch-facts", "#top-patches"]) element(id, HTMLElement).replaceChildren();
    for (const id of ["#histogram", "#crop"]) {
      const canvas = element(id, HTMLCanvasElement);
      context2d(canvas).clearRect(0, 0, canvas.width, canvas.height);
    }
  }

  shows(picture: ImageBitmap): boolean {
    return this.picture === picture;
  }

  /** @param threshold - Of what counts as found; null where the model has none. */
  show(result: Result, picture: ImageBitmap, threshold: number | null): void {
    this.result = result;
    this.picture = picture;
    this.ranks.clear();
    [...result.relevance.keys()]
      .sort((a, b) => (result.relevance[b] ?? 0) - (result.relevance[a] ?? 0) || a - b)
      .forEach((patch, rank) => this.ranks.set(patch, rank + 1));
    // Token budgets and the selection of patches are optional outputs; where nothing was found they say nothing.
    element(".savings", HTMLElement).hidden = result.budgets.length === 0 || result.present === false;
    element(".top-patches", HTMLElement).hidden = result.indices.length === 0 || result.present === false;
    if (result.budgets.length > 0) {
      this.showSavings(result);
      histogram(element("#histogram", HTMLCanvasElement), result.budgets);
    }
    this.listTopPatches(result, picture, threshold ?? -Infinity);
    this.showPatch(this.patch, false);
  }

  /** Show the values of a patch; without one, of the most relevant. @param announce - Also to screen readers. */
  showPatch(patch: number | undefined, announce: boolean): void {
    this.patch = patch;
    const { result, picture } = this;
    if (!result || !picture) return;
    const at = patch ?? mostRelevant(result);
    const place = `Row ${String(Math.floor(at / result.columns) + 1)}, column ${String((at % result.columns) + 1)}`;
    const score = (result.relevance[at] ?? 0).toFixed(3);
    const rows: [string, string][] = [
      ["Relevance", score],
      ["Rank", `${String(this.ranks.get(at) ?? 0)} of ${String(result.relevance.length)}`],
      ...(result.budgets.length > 0 ? [["Tokens", String(result.budgets[at])] as [string, string]] : []),
      ...Object.entries(result.parts).map(([name, part]): [string, string] => [displayName(name), (part[at] ?? 0).toFixed(3)]),
    ];
    element("#patch-name", HTMLElement).textContent = patch === undefined ? `${result.present === false ? "Highest" : "Most relevant"}: ${place.toLowerCase()}` : place;
    fillDescriptionList(element("#patch-facts", HTMLDListElement), rows);
    crop(element("#crop", HTMLCanvasElement), picture, result, at);
    if (announce) element("#patch-live", HTMLElement).textContent = `${place}: ${rows.map(([k, v]) => `${k.toLowerCase()} ${v}`).join(", ")}`;
    for (const item of this.best.querySelectorAll("button")) item.toggleAttribute("data-now", item.dataset.patch === String(patch));
  }

  private showSavings({ budgets }: Result): void {
    const used = budgets.reduce((a, b) => a + b, 0);
    const whole = UNIFORM_BUDGET * budgets.length;
    element("#savings", HTMLElement).textContent = `${String(Math.round(100 * (1 - used / whole)))} %`;
    element("#savings-detail", HTMLElement).textContent = `${thousands(used)} tokens instead of ${thousands(whole)} (${String(UNIFORM_BUDGET)} for every patch)`;
  }

  private listTopPatches(result: Result, picture: ImageBitmap, least: number): void {
    const sum = (a: number, b: number): number => a + b;
    const selected = result.indices.reduce((mass, i) => mass + (result.relevance[i] ?? 0), 0);
    const share = selected / Math.max(1e-9, result.relevance.reduce(sum, 0));
    element("#top-share", HTMLElement).textContent = `The ${String(result.indices.length)} selected patches hold ${String(Math.round(100 * share))} % of the relevance`;
    const listed = [...result.indices].filter((patch) => (result.relevance[patch] ?? 0) >= least).slice(0, TOP_PATCHES);
    this.best.replaceChildren(...listed.map((patch, i) => this.topPatchItem(result, picture, patch, i + 1)));
  }

  private topPatchItem(result: Result, picture: ImageBitmap, patch: number, rank: number): HTMLElement {
    const canvas = createElement("canvas", "", { width: "96", height: "96", "aria-hidden": "true" });
    crop(canvas, picture, result, patch);
    const score = (result.relevance[patch] ?? 0).toFixed(2);
    const button = createElement("button", [canvas, createElement("span", score)], {
      type: "button",
      "data-patch": String(patch),
      "aria-label": [`Rank ${String(rank)}: relevance ${score}`, ...(patch in result.budgets ? [`${String(result.budgets[patch])} tokens`] : [])].join(", "),
    });
    button.style.setProperty("--heat", cssColour(result.relevance[patch] ?? 0));
    for (const [event, to] of [["pointerenter", patch], ["focus", patch], ["click", patch], ["pointerleave", undefined], ["blur", undefined]] as const) {
      button.addEventListener(event, () => {
        this.onpatch(to);
      });
    }
    return createElement("li", [button]);
  }
}

/** Draw a patch and its surroundings, within the edges of the picture. */
function crop(canvas: HTMLCanvasElement, picture: ImageBitmap, result: Result, patch: number): void {
  const context = context2d(canvas);
  const { x, y, width, height } = patchBox(result, { x: 0, y: 0, width: picture.width, height: picture.height }, patch);
  const [wide, tall] = [2 * width, 2 * height];
  const left = Math.min(Math.max(0, x - width / 2), picture.width - wide);
  const top = Math.min(Math.max(0, y - height / 2), picture.height - tall);
  const side = canvas.width;
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, left, top, wide, tall, 0, 0, side, side);
  context.strokeStyle = "#fff";
  context.lineWidth = side / 40;
  context.strokeRect(((x - left) / wide) * side, ((y - top) / tall) * side, side / 2, side / 2);
}

function histogram(canvas: HTMLCanvasElement, budgets: Int32Array): void {
  const context = context2d(canvas);
  const bars = new Array<number>(BARS).fill(0);
  for (const budget of budgets) {
    const at = Math.min(BARS - 1, Math.floor((BARS * (budget - MIN_BUDGET)) / (UNIFORM_BUDGET - MIN_BUDGET + 1)));
    bars[at] = (bars[at] ?? 0) + 1;
  }
  const highest = Math.max(1, ...bars);
  const { width, height } = canvas;
  context.clearRect(0, 0, width, height);
  bars.forEach((count, i) => {
    // The square root keeps a bar of one patch visible beside a bar of a hundred.
    const tall = count === 0 ? 3 : Math.max(8, height * Math.sqrt(count / highest));
    context.fillStyle = count === 0 ? "rgb(128 128 128 / 25%)" : cssColour(0.2 + (0.75 * i) / (BARS - 1));
    context.beginPath();
    context.roundRect((i * width) / BARS + 2, height - tall, width / BARS - 4, tall, 3);
    context.fill();
  });
  const least = Math.min(...budgets);
  canvas.setAttribute("aria-label", `Histogram of tokens per patch: from ${String(least)} to ${String(Math.max(...budgets))}`);
}

/** 123456 as "123,456"; creating the browser's own formatter takes 20 ms. */
function thousands(count: number): string {
  return String(count).replaceAll(/\B(?=(?:\d{3})+$)/g, ",");
}

function displayName(name: string): string {
  const words = name.replaceAll(/[_-]/g, " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}
