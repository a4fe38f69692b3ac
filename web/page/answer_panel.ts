/** AnswerPanel: the answer of a model without scores of patches: each of its outputs as what it is for. */
import type { Manifest, NamedOutput, Result } from "../src/index";
import { type FoundBox, type Layer, areasOf, boxesLayer, classesLayer, classesOfPoints, gridOf, maskLayer, valuesLayer } from "./answer_layers";
import { boxesOf } from "./boxes";
import { type ClassShare, classShares } from "./class_shares";
import { context2d, createElement, element } from "./dom";
import { plotOf } from "./plot";
import { type Kept, cosine } from "./similarity";
import { tensorText } from "./tensor_text";
import { describe, format, numbers, percent } from "./tensor_words";

type Size = { readonly height: number; readonly width: number };
type Declared = Manifest["outputs"][number] | undefined;

/** One output: its content, its sentence for screen readers, and what it draws over the picture. */
interface Shown {
  readonly content: readonly Node[];
  readonly said: string;
  readonly layer?: Layer;
}

const AREAS = 6; // classes of points that are listed
const PLOTTED = [9, 4096] as const; // numbers of values that are plotted
const WRITTEN = 1024; // values of an output
const OPENED = 256; // values of an output that stand there at once, where there is no picture to look at

export class AnswerPanel {
  private readonly kept = new Map<string, Kept>();
  private last = new Map<string, Kept>();

  /** @param onlayer - Called with what is drawn over the picture, by the output that the user chose. */
  constructor(private readonly onlayer: (layer: Layer | undefined) => void) {}

  /** Show every output. @param picture - What was asked; none for a model of tensors. @param input - The size in which it was asked. */
  show({ outputs }: Pick<Result, "outputs">, manifest: Manifest, picture?: ImageBitmap, input?: Size): void {
    element(".answers", HTMLElement).hidden = false;
    const classes = Object.fromEntries(manifest.outputs.map((o) => [o.name, o.classes]));
    this.last = new Map();
    const shown = Object.entries(outputs).map(([name, output]) => {
      const declared = manifest.outputs.find((o) => o.name === name);
      if (output.role === "boxes" && input) return [name, boxesShown(boxesOf(name, outputs, classes, input))] as const;
      if (output.role === "embedding" && picture) return [name, this.embeddingShown(name, output, picture)] as const;
      return [name, outputShown(output, declared)] as const;
    });
    const drawn = picture ? shown.filter(([, { layer }]) => layer) : [];
    element("#answers", HTMLElement).replaceChildren(...shown.map(([name, one]) => this.section(name, one, drawn.length > 1, outputs[name], picture !== undefined)));
    element("#answers-live", HTMLElement).textContent = shown.map(([, { said }]) => said).join("; ");
    this.onlayer(drawn[0]?.[1].layer);
  }

  /** Whether a picture is shown, or kept to be compared with. */
  shows(picture: ImageBitmap): boolean {
    return [...this.kept.values(), ...this.last.values()].some((one) => one.picture === picture);
  }

  private section(name: string, { content, layer }: Shown, several: boolean, output: NamedOutput | undefined, pictured: boolean): HTMLElement {
    const heading = createElement("h3", name);
    const section = createElement("section", [heading, ...content], { "aria-label": name });
    if (output) {
      heading.append(" ", createElement("small", `${output.dtype} [${output.shape.join(", ")}]`));
      section.append(valuesOf(output, !pictured && numbers(output.data).length <= OPENED));
    }
    if (layer && several) {
      const button = createElement("button", "Show on the picture", { type: "button" });
      button.addEventListener("click", () => { this.onlayer(layer); });
      section.append(button);
    }
    return section;
  }

  /** An embedding, compared with that of the kept picture, or else of the first one. */
  private embeddingShown(name: string, output: NamedOutput, picture: ImageBitmap): Shown {
    const vector = numbers(output.data);
    const now = { vector, picture };
    this.last.set(name, now);
    const kept = this.kept.get(name);
    if (!kept) this.kept.set(name, now);
    const keep = createElement("button", "Compare with this picture from now on", { type: "button" });
    keep.addEventListener("click", () => { this.kept.set(name, now); });
    const alike = cosine(vector, (kept ?? now).vector);
    const said = kept && kept.picture !== picture
      ? `Similarity to the kept picture: ${alike.toFixed(3)} (cosine; 1 is the same direction, 0 unrelated)`
      : "Choose another picture to compare it with this one";
    const pair = createElement("div", [thumbnail((kept ?? now).picture), thumbnail(picture)], { class: "pair" });
    return { content: [pair, createElement("p", said), createElement("p", describe(output), { class: "small" }), keep], said };
  }
}

/** An output's values, written out when they are opened. */
function valuesOf(output: NamedOutput, opened: boolean): HTMLElement {
  const details = createElement("details", [createElement("summary", "Values")], { class: "values" });
  const write = (): void => {
    if (details.childElementCount === 1) details.append(createElement("pre", tensorText(output, WRITTEN), { tabindex: "0", role: "group", "aria-label": "Values" }));
  };
  details.addEventListener("toggle", write);
  if (opened) write();
  details.open = opened;
  return details;
}

function outputShown(output: NamedOutput, declared: Declared): Shown {
  const names = declared?.classes ?? [];
  const points = classesOfPoints(output);
  if (points) return pointsShown(points, names);
  const shares = classShares(output, names);
  if (shares[0]) return classesShown(shares, shares[0]);
  const values = numbers(output.data);
  const grid = gridOf(output.shape);
  if (output.role === "mask" && grid) return maskShown(values, grid, ((declared?.low ?? 0) + (declared?.high ?? 1)) / 2);
  if (output.role === "image") return imageShown(output, values, declared);
  const label = output.role === "labels" && values.length === 1 ? names[values[0] ?? 0] : undefined;
  const said = label ?? describe(output);
  const plotted = values.length >= PLOTTED[0] && values.length <= PLOTTED[1] && output.shape.filter((side) => side > 1).length === 1;
  return { content: [...(plotted ? [plotOf(values, `Plot of ${String(values.length)} values`)] : []), createElement("p", said)], said };
}

function pointsShown({ classes, height, width }: NonNullable<ReturnType<typeof classesOfPoints>>, names: readonly string[]): Shown {
  const areas = areasOf(classes, names);
  const items = areas.slice(0, AREAS).map(({ name, share, colour }) => {
    const item = barItem(name, share);
    item.style.setProperty("--colour", colour);
    return item;
  });
  const more = areas.length > AREAS ? [createElement("p", `and ${String(areas.length - AREAS)} more classes`, { class: "small" })] : [];
  const said = areas.slice(0, AREAS).map(({ name, share }) => `${name} ${percent(share)}`).join(", ");
  return { content: [createElement("ol", items, { class: "classes keyed" }), ...more], said: `Of the picture: ${said}`, layer: classesLayer(classes, height, width) };
}

function classesShown(shares: readonly ClassShare[], first: ClassShare): Shown {
  const items = shares.map(({ name, share }) => barItem(name, share));
  return { content: [createElement("ol", items, { class: "classes" })], said: `${first.name}, ${percent(first.share)}` };
}

function maskShown(values: readonly number[], { height, width }: Size, middle: number): Shown {
  const inside = values.filter((value) => value > middle).length / values.length;
  const said = `The mask covers ${percent(inside)} of the picture`;
  return { content: [createElement("p", said)], said, layer: maskLayer(values, height, width, middle) };
}

/** A picture or a map of values: three channels as colours, one as a map over the picture too. */
function imageShown(output: NamedOutput, values: readonly number[], declared: Declared): Shown {
  const [channels = 1, height = 1, width = 1] = output.shape.slice(-3);
  const said = describe(output);
  const [low, high] = channels === 3 ? [declared?.low ?? 0, declared?.high ?? 1] : [Math.min(...extremes(values)), Math.max(...extremes(values))];
  if (channels !== 1 && channels !== 3) return { content: [createElement("p", said)], said };
  const canvas = createElement("canvas", "", { width: String(width), height: String(height), role: "img", "aria-label": said, class: "picture" });
  const image = new ImageData(width, height);
  const points = width * height;
  for (let point = 0; point < points; point++) {
    const byte = (c: number): number => (255 * ((values[c * points + point] ?? 0) - low)) / (high - low || 1);
    image.data.set([byte(0), byte(channels === 3 ? 1 : 0), byte(channels === 3 ? 2 : 0), 255], 4 * point);
  }
  context2d(canvas).putImageData(image, 0, 0);
  const content = [canvas, createElement("p", said)];
  return channels === 1 ? { content, said, layer: valuesLayer(values, height, width, low, high) } : { content, said };
}

function boxesShown(boxes: readonly FoundBox[]): Shown {
  const items = boxes.map(({ name, score }, i) => barItem(`${String(i + 1)} ${name || "box"}`, score ?? undefined));
  const said = boxes.length === 0 ? "no box of a score of at least 0.5" : `${String(boxes.length)} ${boxes.length === 1 ? "box" : "boxes"}: ${boxes.map(({ name }) => name || "box").join(", ")}`;
  return { content: [items.length > 0 ? createElement("ol", items, { class: "classes" }) : createElement("p", said)], said, layer: boxesLayer(boxes) };
}

function extremes(values: readonly number[]): readonly number[] {
  const finite = values.filter(Number.isFinite);
  return finite.reduce<readonly number[]>(([a = 0, b = 0], value) => [Math.min(a, value), Math.max(b, value)], [finite[0] ?? 0, finite[0] ?? 0]);
}

function barItem(name: string, share: number | undefined): HTMLElement {
  const item = createElement("li", [createElement("span", name), createElement("span", share === undefined ? "" : percent(share), { class: "share" })]);
  item.style.setProperty("--share", format(share ?? 0));
  return item;
}

function thumbnail(picture: ImageBitmap): HTMLCanvasElement {
  const canvas = createElement("canvas", "", { width: "96", height: "96", "aria-hidden": "true" });
  context2d(canvas).drawImage(picture, 0, 0, 96, 96);
  return canvas;
}
