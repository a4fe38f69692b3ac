/** ClassShares: the likeliest classes of an answer. */
import type { NamedOutput } from "../src/index";
import { numbers } from "./tensor_words";

const CLASSES = 5; // shown

/** One class: its place, name and share of 1. */
export interface ClassShare {
  readonly place: number;
  readonly name: string;
  readonly share: number;
}

/** The likeliest classes of logits or probabilities of one row, likeliest first; empty for another output. */
export function classShares({ role, shape, data }: NamedOutput, names: readonly string[], most = CLASSES): ClassShare[] {
  const values = numbers(data);
  if ((role !== "logits" && role !== "probabilities") || values.length < 2 || values.length !== shape.at(-1)) return [];
  if (!values.every(Number.isFinite)) return []; // told as the tensor that it is
  const shares = role === "logits" ? softmax(values) : values;
  return shares
    .map((share, place) => ({ place, name: names[place] ?? `class ${String(place)}`, share }))
    .sort((a, b) => b.share - a.share || a.place - b.place)
    .slice(0, most);
}

function softmax(values: readonly number[]): number[] {
  const highest = values.reduce((a, b) => Math.max(a, b));
  const weights = values.map((value) => Math.exp(value - highest));
  const sum = weights.reduce((a, b) => a + b);
  return weights.map((weight) => weight / sum);
}
