/** ResultActions: saves the picture with its map, copies the numbers, and shares the page's address. */
import type { Runner } from "../src/index";
import { cutWords } from "./answer_words";
import { onButton } from "./controls";
import { context2d, createElement, element } from "./dom";
import type { MapView } from "./map_view";
import type { InferenceResult } from "./runner_slot";
import { shareLink } from "./share";
import { numbers } from "./tensor_words";

const LONGEST = 1024; // pixels of the saved picture's longer side
const FONT = 22; // pixels
const DIGITS = 4; // after the point

/** What stands on the page when a button is pressed. */
export interface Shown {
  readonly inference: InferenceResult;
  readonly runner: Runner;
}

/** @param shown - Gives what is shown. @param own - Whether the picture is the user's own. */
export function addResultActions(map: MapView, shown: () => Shown | undefined, own: () => boolean, onerror: (error: unknown) => void): void {
  const say = (text: string): void => { element("#action-message", HTMLElement).textContent = text; };
  onButton("save-picture", async () => {
    const now = shown();
    if (!now) return;
    const { query, image } = now.inference.request;
    download(await withSentence(map, image, element("#answer-line", HTMLElement).textContent), `${slug(query) || "answer"}.png`);
    say("Saved.");
  }, onerror);
  onButton("copy-numbers", async () => {
    const now = shown();
    if (now) say(await copyText(JSON.stringify(record(now))) ? "Copied." : "The browser does not allow copying.");
  }, onerror);
  onButton("share", async () => { say(await shareLink(own())); }, onerror);
}

/** Whether there is a result to save and to copy. */
export function enableResultActions(on: boolean): void {
  for (const id of ["save-picture", "copy-numbers"]) element(`#${id}`, HTMLButtonElement).disabled = !on;
  element("#action-message", HTMLElement).textContent = "";
}

export async function copyText(text: string): Promise<boolean> {
  return navigator.clipboard.writeText(text).then(() => true, () => false);
}

export function download(data: Blob, name: string): void {
  const url = URL.createObjectURL(data);
  createElement("a", "", { href: url, download: name }).click();
  setTimeout(() => { URL.revokeObjectURL(url); }, 60_000); // a download that asks where to save begins late
}

/** A result as the library gives it, with what it was asked of. */
function record({ inference: { request, result }, runner }: Shown): object {
  const { device, dtype, name } = runner.info;
  const asked = { model: name, device, dtype, address: location.href, ...(request.query ? { query: request.query } : {}) };
  if (result.relevance.length === 0) {
    const outputs = Object.entries(result.outputs).map(([output, { role, shape, data }]) => [output, { role, shape, data: numbers(data).map(rounded) }]);
    return { ...asked, outputs: Object.fromEntries(outputs) as object };
  }
  const { rows, columns, present, relevance, budgets, indices } = result;
  const scores = { rows, columns, present, threshold: runner.threshold, relevance: [...relevance].map(rounded) };
  return { ...asked, ...scores, budgets: [...budgets], indices: [...indices] };
}

function rounded(value: number): number {
  return Number(value.toFixed(DIGITS));
}

function slug(text: string): string {
  return text.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-").replaceAll(/^-|-$/g, "").slice(0, 60);
}

/** The map over its picture, with the answer below. */
async function withSentence(map: MapView, picture: ImageBitmap, sentence: string): Promise<Blob> {
  const scale = LONGEST / Math.max(picture.width, picture.height);
  const [width, height] = [Math.max(1, Math.round(picture.width * scale)), Math.max(1, Math.round(picture.height * scale))];
  const drawn = createElement("canvas", "", { width: String(width), height: String(height) });
  map.draw(drawn);
  const saved = createElement("canvas", "", { width: String(width), height: "1" });
  const font = `${String(FONT)}px system-ui, sans-serif`;
  context2d(saved).font = font;
  const lines = linesOf(cutWords(sentence), width - FONT, context2d(saved));
  saved.height = height + (lines.length === 0 ? 0 : Math.round(FONT * (1.4 * lines.length + 0.8)));
  const context = context2d(saved);
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, saved.height);
  context.drawImage(drawn, 0, 0);
  context.fillStyle = "#1d1a24";
  context.font = font;
  context.textBaseline = "top";
  lines.forEach((line, at) => { context.fillText(line, FONT / 2, height + FONT * (0.6 + 1.4 * at)); });
  return new Promise((resolve, reject) => {
    saved.toBlob((blob) => { if (blob) resolve(blob); else reject(new Error("this browser cannot write a PNG image of that size")); }, "image/png");
  });
}

function linesOf(text: string, width: number, context: CanvasRenderingContext2D): readonly string[] {
  const lines: string[] = [];
  for (const word of text.split(" ").filter(Boolean)) {
    const longer = lines.length > 0 ? `${lines.at(-1) ?? ""} ${word}` : word;
    if (lines.length > 0 && context.measureText(longer).width <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}
