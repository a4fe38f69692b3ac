/** MapRenderer: draws a picture with its relevance map, in one of four views. It has no state except a cache. */
import type { Result } from "../src/index";
import { COLORMAP } from "./colormap";
import { context2d } from "./dom";

export type View = "heat" | "focus" | "tokens" | "picture";

export interface RelevanceMap {
  readonly rows: number;
  readonly columns: number;
  /** [rows x columns] in [0, 1]. */
  readonly relevance: Float32Array;
  readonly budgets: Int32Array;
  /** Patches with a line around them. */
  readonly outlined: ArrayLike<number>;
}

/** The map of a result: outlined is what reaches the threshold, or without one what the model selects. */
export function mapOf({ rows, columns, relevance, budgets, indices }: Result, threshold: number | null): RelevanceMap {
  const outlined = threshold === null ? indices : [...relevance.keys()].filter((patch) => (relevance[patch] ?? 0) >= threshold);
  return { rows, columns, relevance, budgets, outlined };
}

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** The position of a picture that is fitted into a canvas. */
export function fitBox(picture: { width: number; height: number }, canvas: { width: number; height: number }): Box {
  const scale = Math.min(canvas.width / picture.width, canvas.height / picture.height);
  const width = Math.round(picture.width * scale);
  const height = Math.round(picture.height * scale);
  return { x: Math.floor((canvas.width - width) / 2), y: Math.floor((canvas.height - height) / 2), width, height };
}

export function renderMap(canvas: HTMLCanvasElement, picture: ImageBitmap, map: RelevanceMap | undefined, view: View): Box {
  const context = context2d(canvas);
  const box = fitBox(picture, canvas);
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = "high";
  if (map && view === "tokens" && map.budgets.length > 0) drawTokenMosaic(context, picture, map, box);
  else if (map && view === "heat") context.drawImage(grayscale(picture, box), box.x, box.y);
  else context.drawImage(picture, box.x, box.y, box.width, box.height);
  if (!map) return box;
  if (view === "heat") drawHeatmap(context, map, box);
  if (view === "focus") drawFocus(context, map, box);
  if (view !== "picture") drawSelectionOutline(context, map, box);
  return box;
}

/** Draw a frame around one patch. */
export function drawPatchFrame(canvas: HTMLCanvasElement, map: RelevanceMap, box: Box, patch: number): void {
  const context = context2d(canvas);
  const { x, y, width, height } = patchBox(map, box, patch);
  const line = Math.max(2, canvas.width / 300);
  context.lineJoin = "round";
  context.strokeStyle = "rgb(0 0 0 / 70%)";
  context.lineWidth = 2.2 * line;
  context.strokeRect(x, y, width, height);
  context.strokeStyle = "#fff";
  context.lineWidth = line;
  context.strokeRect(x, y, width, height);
}

export function patchBox(map: Pick<RelevanceMap, "rows" | "columns">, box: Box, patch: number): Box {
  const [row, column] = [Math.floor(patch / map.columns), patch % map.columns];
  const [width, height] = [box.width / map.columns, box.height / map.rows];
  return { x: box.x + column * width, y: box.y + row * height, width, height };
}

/** The desaturated pictures under heatmaps: desaturating takes most of a frame, and a fade has fifteen frames. */
const grayscaleCache = new WeakMap<ImageBitmap, OffscreenCanvas>();

/** A picture in the size of its box, mostly desaturated. */
function grayscale(picture: ImageBitmap, { width, height }: Box): OffscreenCanvas {
  const cached = grayscaleCache.get(picture);
  if (cached?.width === width && cached.height === height) return cached;
  const canvas = new OffscreenCanvas(Math.max(1, width), Math.max(1, height));
  const inner = canvas.getContext("2d");
  if (inner) {
    inner.imageSmoothingQuality = "high";
    inner.drawImage(picture, 0, 0, width, height);
    inner.globalCompositeOperation = "saturation";
    inner.fillStyle = "rgb(128 128 128 / 75%)";
    inner.fillRect(0, 0, width, height);
  }
  grayscaleCache.set(picture, canvas);
  return canvas;
}

/** Draw the colours of the relevance over the picture. */
function drawHeatmap(context: CanvasRenderingContext2D, map: RelevanceMap, box: Box): void {
  drawOverlay(context, map, box, (share) => {
    const at = 3 * Math.round(255 * share);
    return [COLORMAP[at] ?? 0, COLORMAP[at + 1] ?? 0, COLORMAP[at + 2] ?? 0, 0.4 + 0.4 * share];
  });
}

/** Darken areas of low relevance. */
function drawFocus(context: CanvasRenderingContext2D, map: RelevanceMap, box: Box): void {
  drawOverlay(context, map, box, (share) => [10, 8, 18, 0.9 * (1 - share) ** 1.5]);
}

function drawOverlay(context: CanvasRenderingContext2D, map: RelevanceMap, box: Box, of: (share: number) => readonly number[]): void {
  const image = new ImageData(map.columns, map.rows);
  map.relevance.forEach((share, i) => {
    const [r = 0, g = 0, b = 0, alpha = 0] = of(Math.min(1, Math.max(0, share)));
    image.data.set([r, g, b, Math.round(255 * alpha)], 4 * i);
  });
  // The border repeats the edge values: otherwise smoothing would fade to transparent at the edges.
  const small = new OffscreenCanvas(map.columns + 2, map.rows + 2);
  const inner = small.getContext("2d");
  if (!inner) return;
  for (const [dx, dy] of [[0, 0], [2, 0], [0, 2], [2, 2], [0, 1], [2, 1], [1, 0], [1, 2], [1, 1]] as const) {
    inner.clearRect(dx, dy, map.columns, map.rows);
    inner.putImageData(image, dx, dy);
  }
  context.drawImage(small, 1, 1, map.columns, map.rows, box.x, box.y, box.width, box.height);
}

/** Draw each patch with as many dots as it has tokens. */
function drawTokenMosaic(context: CanvasRenderingContext2D, picture: ImageBitmap, map: RelevanceMap, box: Box): void {
  const scaled = new Map<number, OffscreenCanvas>();
  const at = (side: number): OffscreenCanvas => {
    let canvas = scaled.get(side);
    if (!canvas) {
      canvas = new OffscreenCanvas(side * map.columns, side * map.rows);
      const inner = canvas.getContext("2d");
      if (inner) {
        inner.imageSmoothingQuality = "high";
        inner.drawImage(picture, 0, 0, canvas.width, canvas.height);
      }
      scaled.set(side, canvas);
    }
    return canvas;
  };
  context.save();
  context.imageSmoothingEnabled = false;
  map.budgets.forEach((budget, patch) => {
    const side = Math.max(1, Math.round(Math.sqrt(budget)));
    const { x, y, width, height } = patchBox(map, box, patch);
    const [row, column] = [Math.floor(patch / map.columns), patch % map.columns];
    const [left, right] = [Math.round(x), Math.round(x + width)];
    const [top, bottom] = [Math.round(y), Math.round(y + height)];
    context.drawImage(at(side), column * side, row * side, side, side, left, top, right - left, bottom - top);
  });
  context.restore();
}

/** Draw the outline of the selected patches. */
function drawSelectionOutline(context: CanvasRenderingContext2D, map: RelevanceMap, box: Box): void {
  const selected = new Set(Array.from(map.outlined));
  const path = new Path2D();
  for (const patch of selected) {
    const { x, y, width, height } = patchBox(map, box, patch);
    const column = patch % map.columns;
    const edge = (neighbour: number, inside: boolean, from: readonly [number, number], to: readonly [number, number]): void => {
      if (inside && selected.has(neighbour)) return;
      path.moveTo(...from);
      path.lineTo(...to);
    };
    edge(patch - map.columns, true, [x, y], [x + width, y]);
    edge(patch + map.columns, true, [x, y + height], [x + width, y + height]);
    edge(patch - 1, column > 0, [x, y], [x, y + height]);
    edge(patch + 1, column < map.columns - 1, [x + width, y], [x + width, y + height]);
  }
  const line = Math.max(1.25, context.canvas.width / 520);
  context.save();
  context.beginPath();
  context.rect(box.x, box.y, box.width, box.height);
  context.clip();
  context.lineCap = "round";
  context.strokeStyle = "rgb(0 0 0 / 35%)";
  context.lineWidth = 2.4 * line;
  context.stroke(path);
  context.strokeStyle = "rgb(255 255 255 / 75%)";
  context.lineWidth = line;
  context.stroke(path);
  context.restore();
}
