import { expect, test } from "vitest";
import { Progress, type ProgressEvent } from "../src/progress";

test("progress never passes 100 % and never runs backwards, also when a fallback adds a file", () => {
  const seen: ProgressEvent[] = [];
  const progress = new Progress((event) => seen.push(event));
  progress.addFile("a", 100);
  progress.update("a", 619, false); // decoded bytes against a compressed length, as some servers make it look
  progress.addFile("b", 300);
  progress.update("b", 10, false);
  progress.update("b", 300, false);
  progress.finish();
  const totals = seen.filter((e) => e.status === "progress_total").map((e) => e.progress);
  expect(Math.max(...totals)).toBe(100);
  expect(totals).toEqual([...totals].sort((x, y) => x - y));
  expect(seen.map((e) => e.status).filter((s) => s === "done")).toHaveLength(2);
});
