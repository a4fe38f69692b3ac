import { expect, test } from "vitest";
import { readAddress, writeAddress } from "../page/address";

test("the address says what the page shows, and nothing else gets in", () => {
  const shown = readAddress("?q=red+circle&sample=003&view=tokens&dtype=q8&device=evil&compare=fp32");
  expect(shown).toEqual({ query: "red circle", sample: "003", view: "tokens", device: "auto", dtype: "q8", compare: "fp32" });
  expect(readAddress(writeAddress(shown))).toEqual(shown);
  expect(writeAddress(readAddress(""))).toBe("");
});
