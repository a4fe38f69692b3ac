/**
 * Preprocess: anything that shows a picture -> RGB bytes of the model's size -> float32 [3, H, W].
 *
 * The picture is scaled (both sides on their own, nothing is cropped, so that every part of it gets a score), laid on
 * white where it is transparent, and turned as its EXIF orientation says.
 */
import { ImageError, ShapeError, UsageError } from "./errors";
import { MOST_BYTES, recognise } from "./format";

/** RGB bytes, row by row. */
export interface Pixels {
  readonly data: Uint8Array<ArrayBuffer>;
  readonly height: number;
  readonly width: number;
}

/** A ready input: float32 [3, height, width] in the range that the manifest names. */
export interface ImageTensor {
  readonly data: Float32Array<ArrayBuffer>;
  readonly height: number;
  readonly width: number;
}

export type ImageSource = Blob | ImageBitmap | ImageData | HTMLImageElement | HTMLCanvasElement | HTMLVideoElement | OffscreenCanvas | VideoFrame | ImageTensor;

/** What can cross to the worker. */
export type Sendable = Blob | ImageBitmap | ImageData | ImageTensor;

/** Turn what only the page can read into what the worker can read. The caller's object stays usable. */
export async function sendable(image: ImageSource): Promise<Sendable> {
  if (image instanceof Blob || image instanceof ImageData || image instanceof ImageBitmap || isTensor(image)) return image;
  if (typeof image !== "object" || (image as unknown) === null) {
    throw new UsageError(`an image is needed, not ${JSON.stringify(image)}: a Blob, ImageBitmap, ImageData, element or tensor`);
  }
  try {
    return await createImageBitmap(image);
  } catch (error) {
    throw new ImageError(`the picture cannot be read (${String(error)}): is it loaded, and from this site?`);
  }
}

export function isTensor(image: unknown): image is ImageTensor {
  return typeof image === "object" && image !== null && "data" in image && image.data instanceof Float32Array;
}

/**
 * Decode a file after looking at it, scaled down so that no side is longer than `longest` pixels.
 *
 * @throws ImageError with a sentence for whatever is no readable picture.
 */
export async function decode(file: Blob, longest: number, name = "this file"): Promise<ImageBitmap> {
  if (file.size > MOST_BYTES) throw new ImageError(`${name} has ${String(Math.round(file.size / 1e6))} MB, which is too large: at most ${String(MOST_BYTES >> 20)} MB`);
  const { type, width, height } = recognise(new Uint8Array(await file.arrayBuffer()), name);
  const scale = Math.min(1, longest / Math.max(width, height, 1));
  const typed = file.slice(0, file.size, `image/${type}`); // what it is, not what its name says
  try {
    // Only the longer side is given: which one that is after the EXIF turn, the decoder knows and we do not.
    const whole = await createImageBitmap(typed);
    if (scale === 1 && Math.max(whole.width, whole.height) <= longest) return whole;
    const part = longest / Math.max(whole.width, whole.height);
    const resizeWidth = Math.max(1, Math.round(whole.width * part));
    const resizeHeight = Math.max(1, Math.round(whole.height * part));
    const small = await createImageBitmap(whole, { resizeWidth, resizeHeight, resizeQuality: "high" });
    whole.close();
    return small;
  } catch {
    throw new ImageError(`${name} begins as a ${type.toUpperCase()} picture, and this browser cannot decode it: it may be damaged`);
  }
}

/** RGB bytes of a picture in the model's size. */
export async function pixels(image: Blob | ImageBitmap | ImageData, height: number, width: number): Promise<Pixels> {
  if (image instanceof ImageData && image.width === width && image.height === height) return opaque(image);
  const bitmap = image instanceof Blob ? await decode(image, 4096) : image;
  const scaled = await createImageBitmap(bitmap, { resizeWidth: width, resizeHeight: height, resizeQuality: "high" });
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  if (!context) throw new ImageError("this browser gives no canvas to a worker, and pictures cannot be read without one");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.drawImage(scaled, 0, 0);
  scaled.close();
  if (bitmap !== image && bitmap instanceof ImageBitmap) bitmap.close();
  return opaque(context.getImageData(0, 0, width, height));
}

/**
 * Whether this browser gives back the pixels that were drawn: a privacy setting can answer with noise.
 *
 * @throws ImageError naming the setting.
 */
export function checkCanvas(): void {
  const context = new OffscreenCanvas(16, 16).getContext("2d", { willReadFrequently: true });
  if (!context) throw new ImageError("this browser gives no canvas to a worker, and pictures cannot be read without one");
  context.fillStyle = "rgb(200 100 50)";
  context.fillRect(0, 0, 16, 16);
  const seen = context.getImageData(0, 0, 16, 16).data;
  const off = seen.reduce((sum, value, i) => sum + Math.abs(value - ([200, 100, 50, 255][i % 4] ?? 0)), 0) / seen.length;
  if (off > 4) {
    throw new ImageError("this browser hides the pixels of pictures from pages (a protection against fingerprinting): allow canvas access for this site");
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

/** @throws ShapeError unless the tensor holds three planes of its size. */
export function checkTensor(image: ImageTensor): void {
  if (image.data.length !== 3 * image.height * image.width) {
    throw new ShapeError(
      `the image tensor has ${String(image.data.length)} values, and 3 x ${String(image.height)} x ${String(image.width)} need ${String(3 * image.height * image.width)}`,
    );
  }
}

function opaque(image: ImageData): Pixels {
  const { data, width, height } = image;
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
