/** Findings: what one result says: tokens saved, the patch that is looked at, the most relevant patches. */
import type { Result } from "../src/index";
import { context2d, describe, element, make } from "./element";
import { cell } from "./paint";
import { colour } from "./ramp";

const UNIFORM = 400; // tokens a patch in the uniform grid that savings are measured against
const LEAST = 64;
const BARS = 24;
const BEST = 8; // patches shown as pictures

export class Findings {
  private result: Result | undefined;
  private picture: ImageBitmap | undefined;
  private patch: number | undefined;
  private readonly ranks = new Map<number, number>();
  private readonly best = element("#best", HTMLOListElement);

  /** @param onpatch - Told which of the listed patches is looked at. */
  constructor(private readonly onpatch: (patch: number | undefined) => void) {}

  /** Say nothing: what is shown is about another picture. */
  clear(): void {
    this.result = this.picture = this.patch = undefined;
    element("#saved", HTMLElement).textContent = "–";
    element("#saved-of", HTMLElement).textContent = `than ${String(UNIFORM)} tokens for every patch`;
    element("#patch-name", HTMLElement).textContent = "Patch";
    element("#best-mass", HTMLElement).textContent = "";
    for (const id of ["#patch-facts", "#best"]) element(id, HTMLElement).replaceChildren();
    for (const id of ["#histogram", "#crop"]) {
      const canvas = element(id, HTMLCanvasElement);
      context2d(canvas).clearRect(0, 0, canvas.width, canvas.height);
    }
  }

  show(result: Result, picture: ImageBitmap): void {
    this.result = result;
    this.picture = picture;
    this.ranks.clear();
    [...result.relevance.keys()]
      .sort((a, b) => (result.relevance[b] ?? 0) - (result.relevance[a] ?? 0) || a - b)
      .forEach((patch, rank) => this.ranks.set(patch, rank + 1));
    // A model need not count tokens, nor choose patches.
    element(".saved", HTMLElement).hidden = result.budgets.length === 0;
    element(".best", HTMLElement).hidden = result.indices.length === 0;
    if (result.budgets.length > 0) {
      this.saved(result);
      histogram(element("#histogram", HTMLCanvasElement), result.budgets);
    }
    this.list(result, picture);
    this.look(this.patch, false);
  }

  /** Describe a patch; without one, the most relevant. */
  look(patch: number | undefined, say: boolean): void {
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
      ...Object.entries(result.parts).map(([name, part]): [string, string] => [title(name), (part[at] ?? 0).toFixed(3)]),
    ];
    element("#patch-name", HTMLElement).textContent = patch === undefined ? `Most relevant: ${place.toLowerCase()}` : place;
    describe(element("#patch-facts", HTMLDListElement), rows);
    crop(element("#crop", HTMLCanvasElement), picture, result, at);
    if (say) element("#patch-live", HTMLElement).textContent = `${place}: ${rows.map(([k, v]) => `${k.toLowerCase()} ${v}`).join(", ")}`;
    for (const item of this.best.querySelectorAll("button")) item.toggleAttribute("data-now", item.dataset.patch === String(patch));
  }

  private saved({ budgets }: Result): void {
    const used = budgets.reduce((a, b) => a + b, 0);
    const whole = UNIFORM * budgets.length;
    element("#saved", HTMLElement).textContent = `${String(Math.round(100 * (1 - used / whole)))} %`;
    element("#saved-of", HTMLElement).textContent = `${thousands(used)} instead of ${thousands(whole)}, which is ${String(UNIFORM)} for every patch`;
  }

  private list(result: Result, picture: ImageBitmap): void {
    const sum = (a: number, b: number): number => a + b;
    const chosen = result.indices.reduce((mass, i) => mass + (result.relevance[i] ?? 0), 0);
    const share = chosen / Math.max(1e-9, result.relevance.reduce(sum, 0));
    element("#best-mass", HTMLElement).textContent = `${String(result.indices.length)} patches hold ${String(Math.round(100 * share))} % of the relevance`;
    this.best.replaceChildren(...[...result.indices.subarray(0, BEST)].map((patch, i) => this.item(result, picture, patch, i + 1)));
  }

  private item(result: Result, picture: ImageBitmap, patch: number, rank: number): HTMLElement {
    const canvas = make("canvas", "", { width: "96", height: "96", "aria-hidden": "true" });
    crop(canvas, picture, result, patch);
    const score = (result.relevance[patch] ?? 0).toFixed(2);
    const button = make("button", [canvas, make("span", score)], {
      type: "button",
      "data-patch": String(patch),
      "aria-label": [`Rank ${String(rank)}: relevance ${score}`, ...(patch in result.budgets ? [`${String(result.budgets[patch])} tokens`] : [])].join(", "),
    });
    button.style.setProperty("--heat", colour(result.relevance[patch] ?? 0));
    for (const [event, to] of [["pointerenter", patch], ["focus", patch], ["click", patch], ["pointerleave", undefined], ["blur", undefined]] as const) {
      button.addEventListener(event, () => {
        this.onpatch(to);
      });
    }
    return make("li", [button]);
  }
}

/** The patch with the highest score. */
export function mostRelevant({ relevance }: Pick<Result, "relevance">): number {
  return relevance.indexOf(relevance.reduce((a, b) => Math.max(a, b)));
}

/** A patch and a little of what is around it, never beyond the picture's edge. */
function crop(canvas: HTMLCanvasElement, picture: ImageBitmap, result: Result, patch: number): void {
  const context = context2d(canvas);
  const { x, y, width, height } = cell(result, { x: 0, y: 0, width: picture.width, height: picture.height }, patch);
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
    const at = Math.min(BARS - 1, Math.floor((BARS * (budget - LEAST)) / (UNIFORM - LEAST + 1)));
    bars[at] = (bars[at] ?? 0) + 1;
  }
  const most = Math.max(1, ...bars);
  const { width, height } = canvas;
  context.clearRect(0, 0, width, height);
  bars.forEach((count, i) => {
    // The root keeps a single patch visible beside a hundred.
    const tall = count === 0 ? 3 : Math.max(8, height * Math.sqrt(count / most));
    context.fillStyle = count === 0 ? "rgb(128 128 128 / 25%)" : colour(0.2 + (0.75 * i) / (BARS - 1));
    context.beginPath();
    context.roundRect((i * width) / BARS + 2, height - tall, width / BARS - 4, tall, 3);
    context.fill();
  });
  const least = Math.min(...budgets);
  canvas.setAttribute("aria-label", `How many patches get how many tokens: from ${String(least)} to ${String(Math.max(...budgets))}`);
}

/** 123456 as "123,456"; the browser's own formatter takes 20 ms to be made. */
function thousands(count: number): string {
  return String(count).replaceAll(/\B(?=(?:\d{3})+$)/g, ",");
}

function title(name: string): string {
  const words = name.replaceAll(/[_-]/g, " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}
