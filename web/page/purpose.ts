/** Purpose: what the page is for with this model: what it shows of it, and what it says. */
import type { Bundle, Manifest, QueryEncoder } from "../src/index";
import { element } from "./dom";
import { KINDS } from "./word_list";

/** Words that people try first. */
const COMMON = ["dog", "car", "person", "tree"];

/** Show only what the model has, and say what it does. */
export function describePage(manifest: Bundle["manifest"]): void {
  const scored = hasScores(manifest);
  document.body.toggleAttribute("data-no-scores", !scored);
  document.body.toggleAttribute("data-no-query", !needsQuery({ manifest }));
  if (scored) return;
  const taken = manifest.inputs.map(({ name, shape }) => `${name} [${shape.join(", ")}]`).join(", ");
  const [first] = manifest.inputs;
  element("#purpose", HTMLElement).textContent = takesPicture({ manifest })
    ? `Choose a picture, and the model ${manifest.name} answers. It runs in your browser: no picture leaves this device.`
    : `The model ${manifest.name} takes ${taken}, none of it declared to be a picture. If ${first?.name ?? "one"} is a picture, export it with ` +
      `Input("${first?.name ?? ""}", ..., kind="image") in its ModelSpec, and this page takes one. From code it runs as it is: ` +
      `await runner.feed({ ${first?.name ?? ""}: { dtype: "${first?.dtype ?? ""}", shape: [...], data } }) of @edgekit/web.`;
  document.body.toggleAttribute("data-no-picture", !takesPicture({ manifest }));
  element("h1", HTMLElement).textContent = "What the model sees";
}

/** Say which words the model knows, and that it knows no others. */
export function describeWords({ words }: Pick<QueryEncoder, "words">): void {
  const known = new Set(words);
  const kinds = KINDS.slice(0, -1).map(([name, all]) => [name.toLowerCase(), all.filter((word) => known.has(word))] as const).filter(([, all]) => all.length > 0);
  const names = kinds.map(([name]) => name);
  const about = names.length > 1 ? ` for ${names.slice(0, -1).join(", ")} and ${names.at(-1) ?? ""}` : "";
  const example = kinds.length > 1 ? kinds.map(([name, all]) => (name === "sizes" ? all.at(-1) : name === "patterns" ? "" : all[0])).filter(Boolean).join(" ") : words.slice(0, 2).join("” or “");
  const others = COMMON.filter((word) => !known.has(word)).slice(0, 2).map((word) => `“${word}”`).join(" or ");
  element("#purpose", HTMLElement).textContent =
    `The model knows ${String(words.length)} words${about}, such as “${example}”, and no others: it does not know ${others}. ` +
    "It marks the parts of the picture that fit, in your browser: no picture leaves this device.";
}

export function takesPicture({ manifest }: Pick<Bundle, "manifest">): boolean {
  return manifest.inputs.some((input) => input.kind === "image");
}

export function needsQuery({ manifest }: Pick<Bundle, "manifest">): boolean {
  return manifest.inputs.some((input) => input.kind === "query");
}

/** Whether a model says how relevant each patch is; a page for another one shows its outputs instead of a map. */
export function hasScores(manifest: Manifest): boolean {
  return manifest.outputs.some(({ role }) => role === "scores");
}
