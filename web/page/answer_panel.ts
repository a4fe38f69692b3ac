/** AnswerPanel: the answer of a model without scores of patches: its likeliest classes, and other outputs in numbers. */
import type { Manifest, NamedOutput, Result } from "../src/index";
import { createElement, element } from "./dom";

const CLASSES = 5; // shown
const VALUES = 8; // of a small output, shown one by one
const DIGITS = 4; // significant

/** One class: its place, name and share of 1. */
export interface ClassShare {
  readonly place: number;
  readonly name: string;
  readonly share: number;
}

/** Whether a model says how relevant each patch is; a page for another one shows its outputs instead of a map. */
export function hasScores(manifest: Manifest): boolean {
  return manifest.outputs.some(({ role }) => role === "scores");
}

/** Show every output. @returns The answer in one sentence, for screen readers. */
export function showAnswers({ outputs }: Pick<Result, "outputs">, manifest: Manifest): string {
  const said: string[] = [];
  const parts = Object.entries(outputs).map(([name, output]) => {
    const shares = classShares(output, manifest.outputs.find((o) => o.name === name)?.classes ?? []);
    const [first] = shares;
    said.push(first ? `${first.name}, ${percent(first.share)}` : `${name}: ${describe(output)}`);
    const content = first ? createElement("ol", shares.map(classItem), { class: "classes" }) : createElement("p", describe(output));
    return createElement("section", [createElement("h3", name), content], { "aria-label": name });
  });
  element("#answers", HTMLElement).replaceChildren(...parts);
  return said.join("; ");
}

/** The likeliest classes of logits or probabilities of one row, likeliest first; empty for another output. */
export function classShares({ role, shape, data }: NamedOutput, names: readonly string[], most = CLASSES): ClassShare[] {
  const values = numbers(data);
  if ((role !== "logits" && role !== "probabilities") || values.length < 2 || values.length !== shape.at(-1)) return [];
  const shares = role === "logits" ? softmax(values) : values;
  return shares
    .map((share, place) => ({ place, name: names[place] ?? `class ${String(place)}`, share }))
    .sort((a, b) => b.share - a.share || a.place - b.place)
    .slice(0, most);
}

/** An output in numbers: all values of a small one; the shape, the smallest, mean and largest value of another one. */
export function describe({ shape, data }: NamedOutput): string {
  const values = numbers(data);
  if (values.length <= VALUES) return values.map(format).join(", ");
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  const [low, high] = values.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
  return `${shape.join(" x ")} values from ${format(low)} to ${format(high)}, mean ${format(mean)}`;
}

function numbers(data: ArrayBufferView): number[] {
  return Array.from(data as unknown as ArrayLike<number | bigint>, Number);
}

function softmax(values: readonly number[]): number[] {
  const highest = values.reduce((a, b) => Math.max(a, b));
  const weights = values.map((value) => Math.exp(value - highest));
  const sum = weights.reduce((a, b) => a + b);
  return weights.map((weight) => weight / sum);
}

function classItem({ name, share }: ClassShare): HTMLElement {
  const item = createElement("li", [createElement("span", name), createElement("span", percent(share), { class: "share" })]);
  item.style.setProperty("--share", String(share));
  return item;
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

function format(value: number): string {
  return Number.isInteger(value) ? String(value) : value.toPrecision(DIGITS);
}
