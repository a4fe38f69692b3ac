/**
 * Format: what an image file says of itself, read from its bytes before any decoder sees it.
 *
 * A 60-byte PNG can ask for 3.6 GB of pixels, an SVG can ask for anything, and decoders show the grey half of a truncated
 * photo as if nothing had happened. Sizes and ends are therefore checked here.
 * Layouts: PNG (W3C PNG 3), JPEG (ITU-T T.81 annex B), GIF89a, WebP container (Google), BMP.
 */
import { ImageError } from "./errors";

export interface Format {
  readonly type: "png" | "jpeg" | "gif" | "webp" | "bmp" | "avif";
  /** Pixels; 0 where the container does not say it early (AVIF). */
  readonly width: number;
  readonly height: number;
}

/** Largest picture that is decoded, in pixels: 4 bytes each, and a phone's tab dies at about half a gigabyte. */
export const MOST_PIXELS = 120e6;
/** Largest side, in pixels: browsers refuse more in a canvas. */
export const LONGEST_SIDE = 32767;
/** Largest file, in bytes. */
export const MOST_BYTES = 200 << 20;

/**
 * Recognise an image by its bytes.
 *
 * @param bytes - The whole file.
 * @param name - What to call it in sentences.
 * @throws ImageError if it is none, is cut off, or is too large.
 */
export function recognise(bytes: Uint8Array, name = "this file"): Format {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let format: Format;
  try {
    format = parse(view, name);
  } catch (error) {
    if (error instanceof RangeError) throw cut(name); // a read behind the end
    throw error;
  }
  if (format.width > LONGEST_SIDE || format.height > LONGEST_SIDE || format.width * format.height > MOST_PIXELS) {
    const million = Math.round((format.width * format.height) / 1e6);
    throw new ImageError(
      `${name} is ${String(format.width)} x ${String(format.height)} pixels (${String(million)} million), which is too large: at most ${String(MOST_PIXELS / 1e6)} million pixels and ${String(LONGEST_SIDE)} a side`,
    );
  }
  return format;
}

function parse(view: DataView, name: string): Format {
  if (view.byteLength === 0) throw new ImageError(`${name} is empty`);
  const start = text(view, 0, Math.min(512, view.byteLength));
  if (start.startsWith("\x89PNG\r\n\x1a\n")) return png(view, name);
  if (start.startsWith("\xff\xd8\xff")) return jpeg(view, name);
  if (start.startsWith("GIF87a") || start.startsWith("GIF89a")) return gif(view, name);
  if (start.startsWith("RIFF") && start.startsWith("WEBP", 8)) return webp(view, name);
  if (start.startsWith("BM")) return bmp(view, name);
  if (start.startsWith("ftypavif", 4) || start.startsWith("ftypavis", 4)) return { type: "avif", width: 0, height: 0 };
  throw new ImageError(refusal(start, name));
}

function refusal(start: string, name: string): string {
  const readable = "use a PNG, JPEG, WebP, AVIF, GIF or BMP picture";
  if (/^(\xef\xbb\xbf)?\s*(<\?xml|<!--|<svg)/i.test(start) && /<svg/i.test(start)) {
    return `${name} is an SVG drawing, which may hold scripts and links: export it as a PNG first`;
  }
  if (/^ftyp(heic|heix|mif1|msf1)/.test(start.slice(4))) return `${name} is a HEIC photo, which browsers do not read: ${readable}`;
  if (/^(II\*\0|MM\0\*)/.test(start)) return `${name} is a TIFF picture, which browsers do not read: ${readable}`;
  if (start.startsWith("%PDF")) return `${name} is a PDF document: ${readable}`;
  if (/^[\t\n\r\x20-\x7e]{8,}/.test(start)) return `${name} is a text file and no picture: ${readable}`;
  return `${name} is no picture that is known here: ${readable}`;
}

function cut(name: string): ImageError {
  return new ImageError(`${name} is cut off or damaged: its end is missing; copy or download it again`);
}

function png(view: DataView, name: string): Format {
  const size = { width: view.getUint32(16), height: view.getUint32(20) };
  if (text(view, 12, 4) !== "IHDR" || size.width === 0 || size.height === 0) throw cut(name);
  // An enormous header is refused as such, whatever follows it.
  if (size.width * size.height > MOST_PIXELS) return { type: "png", ...size };
  for (let at = 8; ; at += 12 + view.getUint32(at)) {
    if (text(view, at + 4, 4) === "IEND") return { type: "png", ...size };
  }
}

function jpeg(view: DataView, name: string): Format {
  let width = 0;
  let height = 0;
  let at = 2;
  for (;;) {
    if (view.getUint8(at) !== 0xff) throw cut(name);
    const marker = view.getUint8(at + 1);
    if (marker === 0xff) {
      at += 1; // fill byte
      continue;
    }
    if (marker === 0xd9) break;
    const length = view.getUint16(at + 2);
    // Start of frame: C0-CF but for DHT (C4), JPG (C8) and DAC (CC).
    if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) {
      height = view.getUint16(at + 5);
      width = view.getUint16(at + 7);
      if (width * height > MOST_PIXELS) break;
    }
    at += 2 + length;
    if (marker === 0xda) at = scanEnd(view, at);
  }
  if (width === 0 || height === 0) throw cut(name);
  return { type: "jpeg", width, height };
}

/** Behind the entropy-coded data: at the first marker that is neither a stuffed zero nor a restart. */
function scanEnd(view: DataView, from: number): number {
  const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  for (let at = bytes.indexOf(0xff, from); at >= 0; at = bytes.indexOf(0xff, at + 1)) {
    const next = view.getUint8(at + 1);
    if (next !== 0 && next !== 0xff && !(next >= 0xd0 && next <= 0xd7)) return at;
  }
  throw new RangeError("no end of image");
}

function gif(view: DataView, name: string): Format {
  if (view.getUint8(view.byteLength - 1) !== 0x3b) throw cut(name);
  return { type: "gif", width: view.getUint16(6, true), height: view.getUint16(8, true) };
}

function webp(view: DataView, name: string): Format {
  if (view.getUint32(4, true) + 8 > view.byteLength) throw cut(name);
  const kind = text(view, 12, 4);
  if (kind === "VP8X") return { type: "webp", width: 1 + uint24(view, 24), height: 1 + uint24(view, 27) };
  if (kind === "VP8L") {
    const bits = view.getUint32(21, true);
    return { type: "webp", width: 1 + (bits & 0x3fff), height: 1 + ((bits >>> 14) & 0x3fff) };
  }
  return { type: "webp", width: view.getUint16(26, true) & 0x3fff, height: view.getUint16(28, true) & 0x3fff };
}

function bmp(view: DataView, name: string): Format {
  if (view.getUint32(2, true) > view.byteLength) throw cut(name);
  return { type: "bmp", width: Math.abs(view.getInt32(18, true)), height: Math.abs(view.getInt32(22, true)) };
}

function uint24(view: DataView, at: number): number {
  return view.getUint16(at, true) | (view.getUint8(at + 2) << 16);
}

function text(view: DataView, at: number, length: number): string {
  let made = "";
  for (let i = 0; i < length; i++) made += String.fromCharCode(view.getUint8(at + i));
  return made;
}
