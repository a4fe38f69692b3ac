/** Boxes: the rectangles that a model found, from its outputs. */
import type { NamedOutput } from "../src/index";
import type { FoundBox } from "./answer_layers";

const MOST = 20; // shown
const SURE = 0.5; // score from which a box is shown, where there are scores
const IN_SHARES = 1.5; // boxes whose largest side is below are in shares of the picture, else in pixels of the model's input

/** Everything that a detector gives: names of classes beside each output. */
export type NamedClasses = Readonly<Record<string, readonly string[]>>;

/** The boxes of an output [1, n, 4 or more] or [n, 4 or more]: the surest first, those of a score of at least 0.5. */
export function boxesOf(
  name: string,
  outputs: Readonly<Record<string, NamedOutput>>,
  classes: NamedClasses,
  input: { readonly height: number; readonly width: number },
): readonly FoundBox[] {
  const output = outputs[name];
  const [count = 0, columns = 0] = output?.shape.slice(-2) ?? [];
  if (!output || columns < 4) return [];
  const values = Array.from(output.data as unknown as ArrayLike<number>, Number);
  const rows = Array.from({ length: count }, (_, i) => values.slice(i * columns, (i + 1) * columns));
  const pixels = rows.some((row) => row.slice(0, 4).some((side) => side > IN_SHARES));
  const [across, down] = pixels ? [input.width, input.height] : [1, 1];
  const found = rows.map(([left = 0, top = 0, right = 0, bottom = 0, score], i): FoundBox => {
    const named = classOf(outputs, classes, count, i);
    const sides = { left: left / across, top: top / down, right: right / across, bottom: bottom / down };
    return { ...sides, score: named?.score ?? (score !== undefined && score >= 0 && score <= 1 ? score : null), name: named?.name ?? "" };
  });
  const proper = found.filter(({ left, top, right, bottom }) => right > left && bottom > top);
  const sure = proper.filter(({ score }) => score === null || score >= SURE);
  return sure.sort((a, b) => (b.score ?? 0) - (a.score ?? 0)).slice(0, MOST);
}

/** The likeliest class of a box, from an output of probabilities or logits [.., n, C] for the same n boxes. */
function classOf(outputs: Readonly<Record<string, NamedOutput>>, classes: NamedClasses, boxes: number, at: number): { readonly name: string; readonly score: number } | undefined {
  for (const [name, { role, shape, data }] of Object.entries(outputs)) {
    const [count = 0, width = 0] = shape.slice(-2);
    if ((role !== "logits" && role !== "probabilities") || count !== boxes || shape.length < 2 || width < 1) continue;
    const row = Array.from({ length: width }, (_, c) => Number((data as unknown as ArrayLike<number>)[at * width + c]));
    const highest = Math.max(...row);
    const sum = row.reduce((total, value) => total + Math.exp(value - highest), 0);
    const place = row.indexOf(highest);
    return { name: classes[name]?.[place] ?? `class ${String(place)}`, score: role === "logits" ? 1 / sum : highest };
  }
  return undefined;
}
