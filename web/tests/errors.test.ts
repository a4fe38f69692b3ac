import { expect, test } from "vitest";
import { BackendError, DeviceLostError, deserializeError, serializeError } from "../src/errors";

test("errors cross to the page as what they are", () => {
  const back = deserializeError(serializeError(new DeviceLostError("gone")));
  expect(back).toBeInstanceOf(DeviceLostError);
  expect([back.code, back.name, back.message]).toEqual(["DEVICE_LOST", "DeviceLostError", "gone"]);
  expect(deserializeError(serializeError(new RangeError("odd\nstack")))).toEqual(new BackendError("the runtime failed: odd"));
});
