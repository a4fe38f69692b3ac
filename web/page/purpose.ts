/** Purpose: what the page is for with this model: what it shows of it, and what it says. */
import type { Bundle, Manifest, QueryEncoder } from "../src/index";
import { element } from "./dom";
import { byKind, KINDS, THINGS } from "./word_list";

/** Words that people try first. */
const COMMON = ["dog", "car", "person", "tree", "sky", "road", "water"];

/** Show only what the model has, and say what it does. */
export function describePage(manifest: Bundle["manifest"]): void {
  const pictures = takesPicture({ manifest });
  const scored = pictures && hasScores(manifest);
  document.body.toggleAttribute("data-no-scores", !scored);
  document.body.toggleAttribute("data-no-query", !pictures || !needsQuery({ manifest }));
  document.body.toggleAttribute("data-no-picture", !pictures);
  if (scored) return;
  element("#purpose", HTMLElement).textContent = pictures
    ? `Choose a picture, and the model ${manifest.name} answers. It runs in your browser: no picture leaves this device.`
    : `The model ${manifest.name} takes ${manifest.inputs.map(({ name }) => name).join(", ")} as numbers: change them, or load a file, and it answers in your browser. ` +
      `Nothing leaves this device.${pictureHint(manifest)}`;
  element("h1", HTMLElement).textContent = pictures ? "What the model sees" : "What the model answers";
}

/** Say which words the model knows, and that it knows no others. */
export function describeWords(encoder: Pick<QueryEncoder, "words" | "concepts">): void {
  const known = new Set(encoder.words);
  const kinds = KINDS.slice(0, -1).map(([name, all]) => [name.toLowerCase(), all.filter((word) => known.has(word))] as const).filter(([, all]) => all.length > 0);
  const things = byKind(encoder.concepts()).find(([name]) => name === THINGS)?.[1] ?? [];
  const names = [...kinds.map(([name]) => name), ...(things.length > 0 ? [THINGS.toLowerCase()] : [])];
  const about = names.length > 1 ? ` for ${names.slice(0, -1).join(", ")} and ${names.at(-1) ?? ""}` : "";
  const drawn = kinds.map(([name, all]) => (name === "sizes" ? all.at(-1) : name === "patterns" ? "" : all[0])).filter(Boolean).join(" ");
  const examples = kinds.length > 1 ? [drawn, ...(things[0]?.slice(0, 1) ?? [])] : encoder.words.slice(0, 2);
  const others = COMMON.filter((word) => !known.has(word)).slice(0, 2).map((word) => `“${word}”`).join(" or ");
  element("#purpose", HTMLElement).textContent =
    `The model knows ${String(known.size)} words${about}, such as “${examples.join("” or “")}”, and no others: it does not know ${others}. ` +
    "It marks the parts of the picture that fit, in your browser: no picture leaves this device.";
}

/** Whether pictures, with words where it takes a query, are all that the model takes. */
export function takesPicture({ manifest }: Pick<Bundle, "manifest">): boolean {
  const { inputs } = manifest;
  return inputs.some((input) => input.kind === "image") && inputs.every((input) => input.kind !== "tensor");
}

/** The line of Python that declares a picture, for the first input that has the sizes of one. */
function pictureHint({ inputs }: Manifest): string {
  const like = inputs.find(({ kind, dtype, shape }) => kind === "tensor" && dtype === "float32" && shape.length === 4 && (shape[1] === 3 || shape[3] === 3));
  if (!like || inputs.some(({ kind }) => kind === "image")) return "";
  const sizes = like.shape.map((size) => (typeof size === "string" ? JSON.stringify(size) : String(size))).join(", ");
  const layout = like.shape[1] === 3 ? "" : ', layout="NHWC"';
  return ` If ${like.name} is a picture, say so in the ModelSpec in Python, Input("${like.name}", (${sizes}), kind="image"${layout}), and this page takes pictures.`;
}

export function needsQuery({ manifest }: Pick<Bundle, "manifest">): boolean {
  return manifest.inputs.some((input) => input.kind === "query");
}

/** Whether a model says how relevant each patch is; a page for another one shows its outputs instead of a map. */
export function hasScores(manifest: Manifest): boolean {
  return manifest.outputs.some(({ role }) => role === "scores");
}
