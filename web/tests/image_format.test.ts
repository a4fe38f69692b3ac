import { deflateSync } from "node:zlib";
import { expect, test } from "vitest";
import { ImageError } from "../src/errors";
import { detectFormat } from "../src/image_format";
import { bytes } from "./bundle";

const join = (...parts: (Uint8Array | number[])[]): Uint8Array => Uint8Array.from(parts.flatMap((p) => [...p]));
const uint32 = (value: number): number[] => [(value >>> 24) & 255, (value >>> 16) & 255, (value >>> 8) & 255, value & 255];
const chunk = (type: string, data: Uint8Array | number[]): Uint8Array => join(uint32(data.length), bytes(type), data, [0, 0, 0, 0]);

function png(width: number, height: number): Uint8Array {
  const header = [...uint32(width), ...uint32(height), 8, 2, 0, 0, 0];
  return join([0x89], bytes("PNG\r\n\x1a\n"), chunk("IHDR", header), chunk("IDAT", deflateSync(new Uint8Array(9))), chunk("IEND", []));
}

function jpeg(): Uint8Array {
  const frame = [0xff, 0xc0, 0, 11, 8, 0, 60, 0, 80, 1, 1, 0x11, 0];
  const scan = [0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0, 12, 34, 0xff, 0, 56, 0xff, 0xd0, 78];
  // A thumbnail with an end of its own, inside an APP1 segment.
  const app1 = [0xff, 0xe1, 0, 8, 0xff, 0xd8, 0xff, 0xd9, 0, 0];
  return join([0xff, 0xd8], app1, frame, scan, [0xff, 0xd9]);
}

test("sizes are read from headers", () => {
  expect(detectFormat(png(30, 20))).toEqual({ type: "png", width: 30, height: 20 });
  expect(detectFormat(jpeg())).toEqual({ type: "jpeg", width: 80, height: 60 });
  expect(detectFormat(join(bytes("GIF89a"), [5, 0, 7, 0, 0, 0, 0x3b]))).toEqual({ type: "gif", width: 5, height: 7 });
});

test("a picture bomb is refused by its header", () => {
  expect(() => detectFormat(png(30000, 30000).subarray(0, 60), "bomb.png")).toThrow("bomb.png is 30000 x 30000 pixels (900 million)");
  expect(() => detectFormat(png(40000, 10))).toThrow("too large");
});

test.each([
  ["a truncated PNG", png(30, 20).subarray(0, 50), "truncated"],
  ["a truncated JPEG", jpeg().subarray(0, -2), "truncated"],
  ["a JPEG cut in its header", jpeg().subarray(0, 16), "truncated"],
  ["an SVG", bytes('<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>'), "SVG drawing"],
  ["a text", bytes("Dear Sir or Madam"), "is a text file"],
  ["a PDF", bytes("%PDF-1.7"), "PDF document"],
  ["a HEIC photo", join([0, 0, 0, 24], bytes("ftypheic")), "HEIC photo"],
  ["a TIFF", join(bytes("II*\0"), [8, 0, 0, 0]), "TIFF"],
  ["noise", Uint8Array.of(1, 2, 3, 200, 0, 9), "not an image of a supported format"],
  ["nothing", new Uint8Array(), "is empty"],
])("%s is refused with a sentence", (_, data, sentence) => {
  expect(() => detectFormat(data, "x.png")).toThrow(ImageError);
  expect(() => detectFormat(data, "x.png")).toThrow(sentence);
});
