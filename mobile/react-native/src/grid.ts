import type { PatchScores, Size } from "@edgekit/web/types";

/** A rectangle of pixels. */
export interface Box extends Size {
  readonly top: number;
  readonly left: number;
}

/** Which `part` of a picture fills which `place` of the model's input of this `size`. */
export interface Placement {
  readonly size: Size;
  readonly part: Box;
  readonly place: Box;
}

/**
 * Return the patch in which a pixel of the picture lies, an index of `relevance`.
 *
 * @returns null where the pixel was cropped away, and for a model without scores of patches.
 */
export function patchAt({ rows, columns, size, part, place }: Pick<PatchScores, "rows" | "columns"> & Placement, y: number, x: number): number | null {
  const [down, across] = [y - part.top, x - part.left];
  if (rows === 0 || down < 0 || down >= part.height || across < 0 || across >= part.width) return null;
  return cell(down, part.height, place.top, place.height, rows, size.height) * columns + cell(across, part.width, place.left, place.width, columns, size.width);
}

/** In which of `count` equal cells of an edge the centre of a pixel lies, which fills a share of `length` from `start` on. */
function cell(pixel: number, pixels: number, start: number, length: number, count: number, edge: number): number {
  return Math.floor((((2 * pixel + 1) * length + 2 * pixels * start) * count) / (2 * pixels * edge));
}
