/**
 * ImageFormat: type and size of an image file, read from its bytes before it is decoded.
 *
 * A 60-byte PNG can declare 3.6 GB of pixels, an SVG can load other resources, and decoders show a truncated photo with a
 * grey half and without an error. Therefore the size and the end of a file are checked here.
 * Layouts: PNG (W3C PNG 3), JPEG (ITU-T T.81 annex B), GIF89a, WebP container (Google), BMP.
 */
import { ImageError } from "./errors.js";

export interface ImageFormat {
  readonly type: "png" | "jpeg" | "gif" | "webp" | "bmp" | "avif";
  /** Pixels; 0 where the header does not contain it (AVIF). */
  readonly width: number;
  readonly height: number;
}

/** Largest image that is decoded, in pixels of 4 bytes: a tab on a phone crashes at about half a gigabyte. */
export const MAX_PIXELS = 120e6;
/** Longest side, in pixels: the limit of a canvas in browsers. */
export const MAX_SIDE = 32767;
/** Largest file, in bytes. */
export const MAX_BYTES = 200 << 20;

/**
 * Detect the format of an image from its bytes.
 *
 * @param bytes - The whole file.
 * @param name - Its name in error messages.
 * @throws ImageError if it is not an image, is truncated, or is too large.
 */
export function detectFormat(bytes: Uint8Array, name = "this file"): ImageFormat {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let format: ImageFormat;
  try {
    format = parse(view, name);
  } catch (error) {
    if (error instanceof RangeError) throw truncated(name); // a read past the end
    throw error;
  }
  if (format.width > MAX_SIDE || format.height > MAX_SIDE || format.width * format.height > MAX_PIXELS) {
    const million = Math.round((format.width * format.height) / 1e6);
    throw new ImageError(
      `${name} is ${String(format.width)} x ${String(format.height)} pixels (${String(million)} million), which is too large: the limit is ${String(MAX_PIXELS / 1e6)} million pixels and ${String(MAX_SIDE)} pixels a side`,
    );
  }
  return format;
}

function parse(view: DataView, name: string): ImageFormat {
  if (view.byteLength === 0) throw new ImageError(`${name} is empty`);
  const start = text(view, 0, Math.min(512, view.byteLength));
  if (start.startsWith("\x89PNG\r\n\x1a\n")) return png(view, name);
  if (start.startsWith("\xff\xd8\xff")) return jpeg(view, name);
  if (start.startsWith("GIF87a") || start.startsWith("GIF89a")) return gif(view, name);
  if (start.startsWith("RIFF") && start.startsWith("WEBP", 8)) return webp(view, name);
  if (start.startsWith("BM")) return bmp(view, name);
  if (start.startsWith("ftypavif", 4) || start.startsWith("ftypavis", 4)) return { type: "avif", width: 0, height: 0 };
  throw new ImageError(unsupportedReason(start, name));
}

function unsupportedReason(start: string, name: string): string {
  const supported = "use a PNG, JPEG, WebP, AVIF, GIF or BMP image";
  if (/^(\xef\xbb\xbf)?\s*(<\?xml|<!--|<svg)/i.test(start) && /<svg/i.test(start)) {
    return `${name} is an SVG drawing, which is not supported: export it as a PNG image first`;
  }
  if (/^ftyp(heic|heix|mif1|msf1)/.test(start.slice(4))) return `${name} is a HEIC photo, which browsers cannot decode: ${supported}`;
  if (/^(II\*\0|MM\0\*)/.test(start)) return `${name} is a TIFF image, which browsers cannot decode: ${supported}`;
  if (start.startsWith("%PDF")) return `${name} is a PDF document: ${supported}`;
  if (/^[\t\n\r\x20-\x7e]{8,}/.test(start)) return `${name} is a text file, not an image: ${supported}`;
  return `${name} is not an image of a supported format: ${supported}`;
}

function truncated(name: string): ImageError {
  return new ImageError(`${name} is truncated or damaged: the end of the file is missing; copy or download it again`);
}

function png(view: DataView, name: string): ImageFormat {
  const size = { width: view.getUint32(16), height: view.getUint32(20) };
  if (text(view, 12, 4) !== "IHDR" || size.width === 0 || size.height === 0) throw truncated(name);
  // A size over the limit is reported as such, whatever follows the header.
  if (size.width * size.height > MAX_PIXELS) return { type: "png", ...size };
  for (let at = 8; ; at += 12 + view.getUint32(at)) {
    if (text(view, at + 4, 4) === "IEND") return { type: "png", ...size };
  }
}

function jpeg(view: DataView, name: string): ImageFormat {
  let width = 0;
  let height = 0;
  let at = 2;
  for (;;) {
    if (view.getUint8(at) !== 0xff) throw truncated(name);
    const marker = view.getUint8(at + 1);
    if (marker === 0xff) {
      at += 1; // fill byte
      continue;
    }
    if (marker === 0xd9) break;
    const length = view.getUint16(at + 2);
    // Start of frame: C0-CF except DHT (C4), JPG (C8) and DAC (CC).
    if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) {
      height = view.getUint16(at + 5);
      width = view.getUint16(at + 7);
      if (width * height > MAX_PIXELS) break;
    }
    at += 2 + length;
    if (marker === 0xda) at = scanEnd(view, at);
  }
  if (width === 0 || height === 0) throw truncated(name);
  return { type: "jpeg", width, height };
}

/** The end of the entropy-coded data: the first marker that is neither a stuffed zero nor a restart. */
function scanEnd(view: DataView, from: number): number {
  const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  for (let at = bytes.indexOf(0xff, from); at >= 0; at = bytes.indexOf(0xff, at + 1)) {
    const next = view.getUint8(at + 1);
    if (next !== 0 && next !== 0xff && !(next >= 0xd0 && next <= 0xd7)) return at;
  }
  throw new RangeError("no end of image");
}

function gif(view: DataView, name: string): ImageFormat {
  if (view.getUint8(view.byteLength - 1) !== 0x3b) throw truncated(name);
  return { type: "gif", width: view.getUint16(6, true), height: view.getUint16(8, true) };
}

function webp(view: DataView, name: string): ImageFormat {
  if (view.getUint32(4, true) + 8 > view.byteLength) throw truncated(name);
  const kind = text(view, 12, 4);
  if (kind === "VP8X") return { type: "webp", width: 1 + uint24(view, 24), height: 1 + uint24(view, 27) };
  if (kind === "VP8L") {
    const bits = view.getUint32(21, true);
    return { type: "webp", width: 1 + (bits & 0x3fff), height: 1 + ((bits >>> 14) & 0x3fff) };
  }
  return { type: "webp", width: view.getUint16(26, true) & 0x3fff, height: view.getUint16(28, true) & 0x3fff };
}

function bmp(view: DataView, name: string): ImageFormat {
  if (view.getUint32(2, true) > view.byteLength) throw truncated(name);
  return { type: "bmp", width: Math.abs(view.getInt32(18, true)), height: Math.abs(view.getInt32(22, true)) };
}

function uint24(view: DataView, at: number): number {
  return view.getUint16(at, true) | (view.getUint8(at + 2) << 16);
}

function text(view: DataView, at: number, length: number): string {
  let characters = "";
  for (let i = 0; i < length; i++) characters += String.fromCharCode(view.getUint8(at + i));
  return characters;
}
