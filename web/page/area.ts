/** Area: where in a picture a patch lies, in words: "top left", "centre". */

/** The third of the picture, by row and by column, in which a patch lies. */
export function areaOf(row: number, column: number, rows: number, columns: number): string {
  const third = (at: number, of: number, names: readonly string[]): string => names[Math.floor((3 * (at + 0.5)) / of)] ?? "";
  const found = [third(row, rows, ["top", "", "bottom"]), third(column, columns, ["left", "", "right"])].filter(Boolean);
  return found.length === 0 ? "centre" : found.join(" ");
}
