/** Colormap: dark violet over orange to pale yellow, with increasing lightness, so that it also works without colours. */
const COLORMAP_STOPS: readonly (readonly [number, number, number])[] = [
  [18, 12, 48],
  [82, 22, 112],
  [178, 48, 98],
  [240, 116, 58],
  [255, 234, 150],
];

/** 256 colours as RGB triples. */
export const COLORMAP: Uint8ClampedArray = Uint8ClampedArray.from({ length: 3 * 256 }, (_, at) => {
  const position = (Math.floor(at / 3) / 255) * (COLORMAP_STOPS.length - 1);
  const low = Math.min(COLORMAP_STOPS.length - 2, Math.floor(position));
  const a = COLORMAP_STOPS[low]?.[at % 3] ?? 0;
  const b = COLORMAP_STOPS[low + 1]?.[at % 3] ?? 0;
  return a + (b - a) * (position - low);
});

/** The CSS colour of a value in [0, 1]. */
export function cssColour(share: number): string {
  const at = 3 * Math.round(255 * Math.min(1, Math.max(0, share)));
  return `rgb(${String(COLORMAP[at])} ${String(COLORMAP[at + 1])} ${String(COLORMAP[at + 2])})`;
}
