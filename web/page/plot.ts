/** Plot: a list of numbers as a line, with its zero. */
import { context2d, createElement } from "./dom";

const [WIDTH, HEIGHT] = [560, 96]; // pixels

/** A plot of finite values, in order. */
export function plotOf(values: readonly number[], label: string): HTMLCanvasElement {
  const canvas = createElement("canvas", "", { width: String(WIDTH), height: String(HEIGHT), role: "img", "aria-label": label, class: "plot" });
  const context = context2d(canvas);
  const finite = values.filter(Number.isFinite);
  const [low, high] = finite.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [0, 0]);
  const y = (value: number): number => HEIGHT - 4 - ((value - low) / (high - low || 1)) * (HEIGHT - 8);
  context.strokeStyle = "rgb(128 128 128 / 60%)";
  context.beginPath();
  context.moveTo(0, y(0));
  context.lineTo(WIDTH, y(0));
  context.stroke();
  context.strokeStyle = "#d9622b";
  context.lineWidth = 1.5;
  context.beginPath();
  values.forEach((value, i) => { context.lineTo((i * (WIDTH - 1)) / Math.max(1, values.length - 1), y(Number.isFinite(value) ? value : 0)); });
  context.stroke();
  return canvas;
}
