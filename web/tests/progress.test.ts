import { expect, test } from "vitest";
import { Progress, type ProgressEvent } from "../src/progress";

function file(path: string, size: number, brotli: number | null = null): Parameters<Progress["addFile"]>[0] {
  return { path, size, brotli, gzip: null };
}

test("bytes are those on the wire: of what is sent, the share that has arrived", () => {
  const seen: ProgressEvent[] = [];
  const progress = new Progress((event) => seen.push(event));
  progress.addFile(file("runtime", 1000, 200));
  progress.addFile(file("model", 400, 350));
  const last = (): ProgressEvent | undefined => seen.filter((e) => e.status === "progress_total").at(-1);
  progress.update("runtime", 500, false, 210); // half of it is decoded, and the server says that it sends 210
  expect([last()?.loaded, last()?.total]).toEqual([105, 560]);
  progress.update("runtime", 1000, false, 210);
  progress.update("model", 100, false, 400); // a server that compresses nothing
  expect([last()?.loaded, last()?.total]).toEqual([310, 610]);
  progress.update("model", 400, true);
  expect([last()?.loaded, last()?.total, last()?.progress]).toEqual([610, 610, 100]);
  const shares = seen.filter((e) => e.status === "progress_total").map((e) => e.progress);
  expect(shares).toEqual([...shares].sort((x, y) => x - y));
});

test("progress never passes 100 % and never runs backwards, also when a fallback adds a file", () => {
  const seen: ProgressEvent[] = [];
  const progress = new Progress((event) => seen.push(event));
  progress.addFile(file("a", 100));
  progress.update("a", 619, false); // decoded bytes against a compressed length, as some servers make it look
  progress.addFile(file("b", 300));
  progress.update("b", 10, false);
  progress.update("b", 300, false);
  progress.finish();
  const totals = seen.filter((e) => e.status === "progress_total").map((e) => e.progress);
  expect(Math.max(...totals)).toBe(100);
  expect(totals).toEqual([...totals].sort((x, y) => x - y));
  expect(seen.map((e) => e.status).filter((s) => s === "done")).toHaveLength(2);
});
