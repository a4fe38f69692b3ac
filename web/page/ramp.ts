/** The colours of relevance: dark violet over ember to pale yellow, rising in lightness so that it reads in grey too. */
const STOPS: readonly (readonly [number, number, number])[] = [
  [18, 12, 48],
  [82, 22, 112],
  [178, 48, 98],
  [240, 116, 58],
  [255, 234, 150],
];

/** 256 colours, RGB one after the other. */
export const RAMP: Uint8ClampedArray = Uint8ClampedArray.from({ length: 3 * 256 }, (_, at) => {
  const place = (Math.floor(at / 3) / 255) * (STOPS.length - 1);
  const low = Math.min(STOPS.length - 2, Math.floor(place));
  const a = STOPS[low]?.[at % 3] ?? 0;
  const b = STOPS[low + 1]?.[at % 3] ?? 0;
  return a + (b - a) * (place - low);
});

/** A colour for a share in [0, 1], as CSS. */
export function colour(share: number): string {
  const at = 3 * Math.round(255 * Math.min(1, Math.max(0, share)));
  return `rgb(${String(RAMP[at])} ${String(RAMP[at + 1])} ${String(RAMP[at + 2])})`;
}
