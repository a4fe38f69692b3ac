import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { sha256Fallback, sha256 } from "../src/digest";

test.each([0, 1, 55, 56, 63, 64, 119, 1000, (1 << 20) + 3])("sha256 of %i bytes, without and with the platform's own", async (length) => {
  const data = Uint8Array.from({ length }, (_, i) => (i * 31) & 255);
  const wanted = createHash("sha256").update(data).digest("hex");
  expect(await sha256Fallback(data)).toBe(wanted);
  expect(await sha256(data)).toBe(wanted);
});
