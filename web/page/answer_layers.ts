/** AnswerLayers: what outputs look like over the picture: classes of its points, masks, maps of values, boxes. */
import type { NamedOutput } from "../src/index";
import { COLORMAP } from "./colormap";
import type { Box } from "./map_renderer";

/** Draws over the picture, which fills the box. */
export type Layer = (context: CanvasRenderingContext2D, box: Box) => void;

/** One box: sides as shares of the picture, and what it is. */
export interface FoundBox {
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
  readonly score: number | null;
  readonly name: string;
}

export interface Area {
  readonly place: number;
  readonly name: string;
  /** Of the picture. */
  readonly share: number;
  readonly colour: string;
}

const ALPHA = 150; // of 255
const GOLDEN_ANGLE = 137.508; // degrees between the hues of neighbouring classes

/** The colour of a class: neighbours differ. */
export function classColour(place: number): string {
  return `hsl(${((place * GOLDEN_ANGLE) % 360).toFixed(0)} 75% 55%)`;
}

/** The size of an output that has a value for each point: [.., H, W] with all other axes of one; undefined for another. */
export function gridOf(shape: readonly number[]): { readonly height: number; readonly width: number } | undefined {
  const [height = 1, width = 1] = shape.slice(-2);
  const one = shape.slice(0, -2).every((side) => side === 1);
  return shape.length >= 2 && one && height > 1 && width > 1 ? { height, width } : undefined;
}

/** The likeliest class of each point of logits or probabilities [1, C, H, W], or labels [1, H, W]; undefined for another. */
export function classesOfPoints({ role, shape, data }: NamedOutput): { readonly classes: Int32Array; readonly height: number; readonly width: number } | undefined {
  const values = data as unknown as ArrayLike<number | bigint>;
  const grid = role === "labels" ? gridOf(shape) : undefined;
  if (grid) return { ...grid, classes: Int32Array.from(values, Number) };
  const [batch = 0, count = 0, height = 0, width = 0] = shape;
  if ((role !== "logits" && role !== "probabilities") || shape.length !== 4 || batch !== 1 || count < 2 || height * width < 4) return undefined;
  const points = height * width;
  const classes = new Int32Array(points);
  for (let point = 0; point < points; point++) {
    for (let c = 1; c < count; c++) {
      if (Number(values[c * points + point]) > Number(values[(classes[point] ?? 0) * points + point])) classes[point] = c;
    }
  }
  return { classes, height, width };
}

/** The classes by their share of the picture, the largest first. */
export function areasOf(classes: Int32Array, names: readonly string[]): readonly Area[] {
  const counts = new Map<number, number>();
  for (const place of classes) counts.set(place, (counts.get(place) ?? 0) + 1);
  return [...counts]
    .sort((a, b) => b[1] - a[1] || a[0] - b[0])
    .map(([place, count]) => ({ place, name: names[place] ?? `class ${String(place)}`, share: count / classes.length, colour: classColour(place) }));
}

/** Points in colours; a colour is [red, green, blue, alpha] of 255. */
export function pointsLayer(height: number, width: number, colourOf: (point: number) => readonly number[], smooth = false): Layer {
  const image = new ImageData(width, height);
  for (let point = 0; point < height * width; point++) image.data.set(colourOf(point), 4 * point);
  const canvas = new OffscreenCanvas(width, height);
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return (context, box) => {
    context.imageSmoothingEnabled = smooth;
    context.drawImage(canvas, box.x, box.y, box.width, box.height);
    context.imageSmoothingEnabled = true;
  };
}

export function classesLayer(classes: Int32Array, height: number, width: number): Layer {
  const colours = new Map([...new Set(classes)].map((place) => [place, bytesOf(classColour(place))]));
  return pointsLayer(height, width, (point) => [...(colours.get(classes[point] ?? 0) ?? [0, 0, 0]), ALPHA]);
}

/** Inside of a mask, above the middle of what is surely outside and surely inside. */
export function maskLayer(values: ArrayLike<number>, height: number, width: number, middle: number): Layer {
  return pointsLayer(height, width, (point) => ((values[point] ?? 0) > middle ? [255, 110, 40, ALPHA] : [10, 8, 18, ALPHA]));
}

/** Values in colours, from the lowest to the highest. */
export function valuesLayer(values: ArrayLike<number>, height: number, width: number, low: number, high: number): Layer {
  return pointsLayer(height, width, (point) => {
    const share = Math.min(1, Math.max(0, ((values[point] ?? 0) - low) / (high - low || 1)));
    const at = 3 * Math.round(255 * share);
    return [COLORMAP[at] ?? 0, COLORMAP[at + 1] ?? 0, COLORMAP[at + 2] ?? 0, 190];
  }, true);
}

export function boxesLayer(boxes: readonly FoundBox[]): Layer {
  return (context, { x, y, width, height }) => {
    const line = Math.max(2, width / 250);
    context.font = `600 ${String(Math.max(12, Math.round(width / 36)))}px system-ui, sans-serif`;
    context.textBaseline = "bottom";
    boxes.forEach((box, i) => {
      const [left, top] = [x + box.left * width, y + box.top * height];
      context.strokeStyle = classColour(i);
      context.lineWidth = line;
      context.strokeRect(left, top, (box.right - box.left) * width, (box.bottom - box.top) * height);
      const text = `${String(i + 1)}${box.name === "" ? "" : ` ${box.name}`}`;
      context.fillStyle = "rgb(0 0 0 / 70%)";
      context.fillRect(left, top, context.measureText(text).width + 3 * line, 1.4 * Math.max(12, width / 36));
      context.fillStyle = "#fff";
      context.fillText(text, left + 1.5 * line, top + 1.35 * Math.max(12, width / 36));
    });
  };
}

/** A CSS colour as [red, green, blue]. */
function bytesOf(colour: string): readonly number[] {
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  if (!context) return [128, 128, 128];
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data.subarray(0, 3)];
}
