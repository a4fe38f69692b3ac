import { expect, test } from "vitest";
import { BackendError, DeviceLostError, revive, tell } from "../src/errors";

test("errors cross to the page as what they are", () => {
  const back = revive(tell(new DeviceLostError("gone")));
  expect(back).toBeInstanceOf(DeviceLostError);
  expect([back.code, back.name, back.message]).toEqual(["DEVICE_LOST", "DeviceLostError", "gone"]);
  expect(revive(tell(new RangeError("odd\nstack")))).toEqual(new BackendError("the runtime failed: odd"));
});
