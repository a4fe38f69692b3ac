/** MapView: a picture with its relevance map, a cursor for patches, and a progress bar while loading. */
import type { Result } from "../src/index";
import type { Layer } from "./answer_layers";
import { mostRelevant } from "./answer_words";
import { context2d, element } from "./dom";
import { type Box, type RelevanceMap, type View, drawPatchFrame, fitBox, mapOf, renderMap } from "./map_renderer";

const FADE_TIME = 240; // ms of the transition between two maps
const MAX_PIXEL_RATIO = 2; // device pixels per CSS pixel; more need time without a visible effect

export class MapView {
  readonly canvas: HTMLCanvasElement;
  private readonly caption: HTMLElement;
  private readonly progress: HTMLElement;
  private picture: ImageBitmap | undefined;
  private map: RelevanceMap | undefined;
  private shown: Float32Array | undefined;
  private view: View = "heat";
  private layer: Layer | undefined;
  private cursor: number | undefined;
  private fading = 0;
  private readonly emptyLabel: string;

  /** @param onpatch - Called with the patch under the pointer or the cursor, or undefined. */
  constructor(
    private readonly figure: HTMLElement,
    private readonly onpatch: (patch: number | undefined) => void,
  ) {
    this.canvas = element("canvas", HTMLCanvasElement, figure);
    this.emptyLabel = this.canvas.getAttribute("aria-label") ?? "";
    this.caption = element("figcaption", HTMLElement, figure);
    this.progress = element(".progress", HTMLElement, figure);
    new ResizeObserver(() => {
      this.redraw();
    }).observe(this.canvas);
    this.listen();
  }

  showPicture(picture: ImageBitmap): void {
    this.picture = picture;
    this.map = this.shown = this.layer = undefined;
    this.stale = false;
    this.label = this.emptyLabel;
    this.redraw();
  }

  /** Show a frame of a live picture at once, with its own map where it has one. */
  showFrame(frame: ImageBitmap, result?: Result, threshold: number | null = null): void {
    cancelAnimationFrame(this.fading);
    if (!result) this.label = this.emptyLabel;
    this.picture = frame;
    this.map = result && mapOf(result, threshold);
    this.shown = result?.relevance;
    this.layer = undefined;
    this.stale = false;
    this.redraw();
  }

  /** Show a result; the map fades from the previous one. */
  showResult(result: Result, threshold: number | null): void {
    const from = this.shown;
    this.map = mapOf(result, threshold);
    this.stale = false;
    cancelAnimationFrame(this.fading);
    const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (reducedMotion || from?.length !== result.relevance.length) this.setRelevance(result.relevance);
    else this.fade(from, result.relevance, performance.now());
  }

  get shownPicture(): ImageBitmap | undefined {
    return this.picture;
  }

  set label(text: string) {
    this.canvas.setAttribute("aria-label", text);
  }

  /** What is shown, in the picture's own pixels. */
  draw(canvas: HTMLCanvasElement): void {
    if (!this.picture) return;
    const box = renderMap(canvas, this.picture, this.map, this.view);
    this.layer?.(context2d(canvas), box);
  }

  /** Draw something else than a map over the picture. */
  showLayer(layer: Layer | undefined): void {
    this.layer = layer;
    this.redraw();
  }

  setView(view: View): void {
    this.view = view;
    this.redraw();
  }

  setCursor(patch: number | undefined): void {
    this.cursor = patch;
    this.redraw();
  }

  setCaption(text: string): void {
    this.caption.textContent = text;
  }

  /** A share in [0, 1], or undefined when nothing is loading. */
  setProgress(share: number | undefined): void {
    this.progress.hidden = share === undefined;
    this.progress.style.setProperty("--share", String(share ?? 0));
  }

  /** Mark the map as the answer to an earlier query. */
  set stale(is: boolean) {
    this.figure.toggleAttribute("data-stale", is && this.map !== undefined);
  }

  set hidden(hide: boolean) {
    this.figure.hidden = hide;
  }

  private fade(from: Float32Array, to: Float32Array, start: number): void {
    const share = Math.min(1, (performance.now() - start) / FADE_TIME);
    const eased = 1 - (1 - share) ** 3;
    this.setRelevance(to.map((value, i) => (from[i] ?? 0) + (value - (from[i] ?? 0)) * eased));
    if (share < 1) this.fading = requestAnimationFrame(() => { this.fade(from, to, start); });
  }

  private setRelevance(relevance: Float32Array): void {
    this.shown = relevance;
    this.redraw();
  }

  private redraw(): void {
    const { clientWidth, clientHeight } = this.canvas;
    if (!this.picture || clientWidth === 0) return;
    const sharp = Math.min(MAX_PIXEL_RATIO, devicePixelRatio);
    const [width, height] = [Math.round(clientWidth * sharp), Math.round(clientHeight * sharp)];
    if (this.canvas.width !== width || this.canvas.height !== height) [this.canvas.width, this.canvas.height] = [width, height];
    const map = this.map && { ...this.map, relevance: this.shown ?? this.map.relevance };
    const box = renderMap(this.canvas, this.picture, map, this.view);
    this.layer?.(context2d(this.canvas), box);
    if (map && this.cursor !== undefined) drawPatchFrame(this.canvas, map, box, this.cursor);
  }

  private listen(): void {
    const canvas = this.canvas;
    canvas.addEventListener("pointermove", (event) => {
      if (event.pointerType === "mouse") this.onpatch(this.patchAt(event));
    });
    canvas.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse" && document.activeElement !== canvas) this.onpatch(undefined);
    });
    canvas.addEventListener("pointerdown", (event) => {
      this.onpatch(this.patchAt(event));
    });
    canvas.addEventListener("keydown", (event) => {
      if (!this.map || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Escape") {
        this.onpatch(undefined);
        return;
      }
      const next = this.patchForKey(event.key, this.map);
      if (next === undefined) return;
      event.preventDefault();
      this.onpatch(next);
    });
  }

  private patchForKey(key: string, map: RelevanceMap): number | undefined {
    const { rows, columns, relevance } = map;
    const now = this.cursor ?? mostRelevant(map);
    const [row, column] = [Math.floor(now / columns), now % columns];
    switch (key) {
      case "ArrowLeft":
        return this.cursor === undefined ? now : row * columns + Math.max(0, column - 1);
      case "ArrowRight":
        return this.cursor === undefined ? now : row * columns + Math.min(columns - 1, column + 1);
      case "ArrowUp":
        return this.cursor === undefined ? now : Math.max(0, row - 1) * columns + column;
      case "ArrowDown":
        return this.cursor === undefined ? now : Math.min(rows - 1, row + 1) * columns + column;
      case "Home":
        return mostRelevant(map);
      case "End":
        return relevance.lastIndexOf(Math.min(...relevance));
      default:
        return undefined;
    }
  }

  private patchAt(event: PointerEvent): number | undefined {
    if (!this.map || !this.picture) return undefined;
    const bounds = this.canvas.getBoundingClientRect();
    const box: Box = fitBox(this.picture, bounds);
    const column = Math.floor(((event.clientX - bounds.left - box.x) / box.width) * this.map.columns);
    const row = Math.floor(((event.clientY - bounds.top - box.y) / box.height) * this.map.rows);
    const inside = column >= 0 && row >= 0 && column < this.map.columns && row < this.map.rows;
    return inside ? row * this.map.columns + column : undefined;
  }
}
