import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { type Box, patchAt } from "../src/grid.js";

interface Grid {
  readonly rows: number;
  readonly columns: number;
  readonly size: readonly [number, number];
  readonly part: readonly [number, number, number, number];
  readonly place: readonly [number, number, number, number];
  readonly patches: readonly (readonly [number, number, number | null])[];
}

const golden = JSON.parse(readFileSync("../../tests/golden/fitting.json", "utf8")) as { readonly grids: readonly Grid[] };
const box = ([top, left, height, width]: Grid["part"]): Box => ({ top, left, height, width });

test("a pixel lies in the patch of the other languages", () => {
  assert.ok(golden.grids.length > 3);
  for (const { rows, columns, size: [height, width], part, place, patches } of golden.grids) {
    const grid = { rows, columns, size: { height, width }, part: box(part), place: box(place) };
    for (const [y, x, patch] of patches) assert.equal(patchAt(grid, y, x), patch);
  }
});
