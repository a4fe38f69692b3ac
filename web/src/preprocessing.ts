/**
 * Preprocessing: any image source -> RGB bytes of the model's size -> float32 [3, H, W].
 *
 * The image gets the model's size as its input's `fit` says (stretched, cropped or letterboxed), is composited on white
 * where it is transparent, and rotated according to its EXIF orientation.
 */
import { environment } from "./environment.js";
import { ImageError, ShapeError, UsageError } from "./errors.js";
import { MAX_BYTES, detectFormat } from "./image_format.js";
import type { Pixels } from "./types.js";

export type { Pixels };

/** An input without preprocessing: float32 [3, height, width] in the range that the manifest declares. */
export interface ImageTensor {
  readonly data: Float32Array<ArrayBuffer>;
  readonly height: number;
  readonly width: number;
}

export type ImageSource = Blob | ImageBitmap | ImageData | HTMLImageElement | HTMLCanvasElement | HTMLVideoElement | OffscreenCanvas | VideoFrame | Pixels | ImageTensor;

/** The image types that can be sent to a worker. */
export type TransferableImage = Blob | ImageBitmap | ImageData | Pixels | ImageTensor;

/** Convert an image that only the page can read into one for the worker. The caller's object stays usable. */
export async function toTransferable(image: ImageSource): Promise<TransferableImage> {
  if (image instanceof Blob || isTensor(image) || isPixels(image)) return image;
  if (typeof ImageBitmap !== "undefined" && (image instanceof ImageData || image instanceof ImageBitmap)) return image;
  if (typeof image !== "object" || (image as unknown) === null) {
    throw new UsageError(`the image must be a Blob, ImageBitmap, ImageData, element or tensor, not ${JSON.stringify(image)}`);
  }
  if (!environment().draws) throw new ImageError(NO_CANVAS);
  try {
    return await createImageBitmap(image);
  } catch (error) {
    throw new ImageError(`the image cannot be read (${String(error)}): it must be loaded completely, and come from this site`);
  }
}

const NO_CANVAS =
  "Node and Deno decode and resize no pictures: pass pixels { data, height, width } (RGB or RGBA bytes) in a size that the model takes";

export function isPixels(image: unknown): image is Pixels {
  if (typeof image !== "object" || image === null || !("data" in image)) return false;
  if (typeof ImageData !== "undefined" && image instanceof ImageData) return false;
  return image.data instanceof Uint8Array || image.data instanceof Uint8ClampedArray;
}

export function isTensor(image: unknown): image is ImageTensor {
  return typeof image === "object" && image !== null && "data" in image && image.data instanceof Float32Array;
}

/**
 * Check and decode a file, scaled down so that no side is longer than `longest` pixels.
 *
 * @throws ImageError if it is not an image that can be decoded.
 */
export async function decode(file: Blob, longest: number, name = "this file"): Promise<ImageBitmap> {
  if (file.size > MAX_BYTES) throw new ImageError(`${name} has ${String(Math.round(file.size / 1e6))} MB, which is too large: the limit is ${String(MAX_BYTES >> 20)} MB`);
  const { type, width, height } = detectFormat(new Uint8Array(await file.arrayBuffer()), name);
  const scale = Math.min(1, longest / Math.max(width, height, 1));
  const typed = file.slice(0, file.size, `image/${type}`); // the detected type, whatever the file name says
  try {
    // Which side is the longer one is known only after the decoder has applied the EXIF orientation.
    const whole = await createImageBitmap(typed);
    if (scale === 1 && Math.max(whole.width, whole.height) <= longest) return whole;
    const part = longest / Math.max(whole.width, whole.height);
    const resizeWidth = Math.max(1, Math.round(whole.width * part));
    const resizeHeight = Math.max(1, Math.round(whole.height * part));
    const small = await createImageBitmap(whole, { resizeWidth, resizeHeight, resizeQuality: "high" });
    whole.close();
    return small;
  } catch {
    throw new ImageError(`this browser cannot decode ${name}: its header is that of a ${type.toUpperCase()} image, but the file may be damaged`);
  }
}

/** A part of an image or of the model's size: top, left, height, width. */
export type Rectangle = readonly [number, number, number, number];

/** Grey of a letterbox's borders. */
const BORDER = 114;

/**
 * Which part of a picture fills which part of the model's size, by an input's `fit` (tests/golden/README.md).
 *
 * @throws UsageError if the rule is not known.
 */
export function fitted(high: number, wide: number, height: number, width: number, fit: string): { part: Rectangle; place: Rectangle } {
  const wider = wide * height > high * width;
  const share = (edge: number, part: number, of: number): number => Math.max(1, Math.floor((2 * edge * part + of) / (2 * of)));
  const middle = (rows: number, columns: number, h: number, w: number): Rectangle => [Math.floor((rows - h) / 2), Math.floor((columns - w) / 2), h, w];
  const [all, size] = [middle(high, wide, high, wide), middle(height, width, height, width)];
  if (fit === "stretch") return { part: all, place: size };
  if (fit === "crop") return { part: wider ? middle(high, wide, high, share(high, width, height)) : middle(high, wide, share(wide, height, width), wide), place: size };
  if (fit === "letterbox") return { part: all, place: wider ? middle(height, width, share(width, high, wide), width) : middle(height, width, height, share(height, wide, high)) };
  throw new UsageError(`the fit "${fit}" of the model's picture is not known to this version of the library`);
}

/** RGB bytes of an image in the model's size. */
export async function toPixels(image: Exclude<TransferableImage, ImageTensor>, height: number, width: number, fit: string): Promise<Pixels> {
  if (isPixels(image)) {
    checkPixels(image);
    if (image.width === width && image.height === height) return onWhite(image);
    if (!environment().draws) throw new ImageError(NO_CANVAS);
    return toPixels(toImageData(image), height, width, fit);
  }
  const drawn = typeof ImageData !== "undefined" && image instanceof ImageData;
  if (drawn && image.width === width && image.height === height) return onWhite(image);
  if (!environment().draws) throw new ImageError(NO_CANVAS);
  const bitmap = image instanceof Blob ? await decode(image, 4096) : image;
  const { part, place } = fitted(bitmap.height, bitmap.width, height, width, fit);
  const [top, left, resizeHeight, resizeWidth] = place;
  const scaled = await createImageBitmap(bitmap, part[1], part[0], part[3], part[2], { resizeWidth, resizeHeight, resizeQuality: "high" });
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  if (!context) throw new ImageError("this browser provides no 2D canvas in workers, which is needed to read images");
  context.fillStyle = `rgb(${String(BORDER)} ${String(BORDER)} ${String(BORDER)})`;
  context.fillRect(0, 0, width, height);
  context.fillStyle = "#fff";
  context.fillRect(left, top, resizeWidth, resizeHeight);
  context.drawImage(scaled, left, top);
  scaled.close();
  if (bitmap !== image && bitmap instanceof ImageBitmap) bitmap.close();
  return onWhite(context.getImageData(0, 0, width, height));
}

/**
 * Check that the canvas returns the pixels that were drawn: fingerprinting protection can replace them with noise.
 *
 * @throws ImageError naming that setting.
 */
export function checkCanvasReadback(): void {
  const context = new OffscreenCanvas(16, 16).getContext("2d", { willReadFrequently: true });
  if (!context) throw new ImageError("this browser provides no 2D canvas in workers, which is needed to read images");
  context.fillStyle = "rgb(200 100 50)";
  context.fillRect(0, 0, 16, 16);
  const pixels = context.getImageData(0, 0, 16, 16).data;
  const meanError = pixels.reduce((sum, value, i) => sum + Math.abs(value - ([200, 100, 50, 255][i % 4] ?? 0)), 0) / pixels.length;
  if (meanError > 4) {
    throw new ImageError("this browser changes the pixels that a page reads from a canvas (fingerprinting protection): allow canvas access for this site");
  }
}

/** RGB bytes -> float32 [3, H, W], where byte 0 becomes `low` and byte 255 `high`. */
export function normalise(image: Pixels, low: number, high: number): Float32Array<ArrayBuffer> {
  const plane = image.height * image.width;
  const tensor = new Float32Array(3 * plane);
  const scale = new Float32Array(256);
  for (let byte = 0; byte < 256; byte++) scale[byte] = low + ((high - low) * byte) / 255;
  for (let i = 0, at = 0; i < plane; i++) {
    tensor[i] = scale[image.data[at++] ?? 0] ?? 0;
    tensor[plane + i] = scale[image.data[at++] ?? 0] ?? 0;
    tensor[2 * plane + i] = scale[image.data[at++] ?? 0] ?? 0;
  }
  return tensor;
}

/** @throws ShapeError unless the tensor has three planes of its size. */
export function checkTensor(image: ImageTensor): void {
  if (image.data.length !== 3 * image.height * image.width) {
    throw new ShapeError(
      `the image tensor has ${String(image.data.length)} values, but 3 x ${String(image.height)} x ${String(image.width)} needs ${String(3 * image.height * image.width)}`,
    );
  }
}

/** @throws ShapeError unless there are three or four bytes a pixel. */
function checkPixels({ data, height, width }: Pixels): void {
  if (data.length === 3 * height * width || data.length === 4 * height * width) return;
  throw new ShapeError(
    `the picture has ${String(data.length)} bytes, but ${String(height)} x ${String(width)} pixels need three (RGB) or four (RGBA) bytes each`,
  );
}

/** Pixels for a canvas. */
export function toImageData({ data, height, width }: Pixels): ImageData {
  if (data.length === 4 * height * width) return new ImageData(new Uint8ClampedArray(data), width, height);
  const rgba = new Uint8ClampedArray(4 * height * width).fill(255);
  for (let from = 0, to = 0; from < data.length; to++) {
    for (let channel = 0; channel < 3; channel++) rgba[to++] = data[from++] ?? 0;
  }
  return new ImageData(rgba, width, height);
}

function onWhite({ data, width, height }: Pick<ImageData, "width" | "height"> & { readonly data: ArrayLike<number> }): Pixels {
  if (data.length === 3 * width * height) return { data: Uint8Array.from(data), height, width };
  const rgb = new Uint8Array(3 * width * height);
  for (let from = 0, to = 0; from < data.length; from += 4) {
    const alpha = data[from + 3] ?? 255;
    for (let c = 0; c < 3; c++) {
      const value = data[from + c] ?? 0;
      rgb[to++] = alpha === 255 ? value : Math.round((value * alpha + 255 * (255 - alpha)) / 255);
    }
  }
  return { data: rgb, height, width };
}
