/** Camera: opens the camera, the one at the back of a phone, or says why it cannot be opened. */
import { ImageError } from "../src/index";

/** @throws ImageError with the reason in words. */
export async function openCamera(): Promise<MediaStream> {
  // Its type says that `mediaDevices` always exists; it does not on plain http.
  const devices = navigator.mediaDevices as MediaDevices | undefined;
  if (!devices) throw new ImageError("the camera is available only on https or localhost");
  try {
    return await devices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1280 } } });
  } catch (error) {
    throw new ImageError(failureReason(error));
  }
}

function failureReason(error: unknown): string {
  const name = error instanceof DOMException ? error.name : "";
  if (name === "NotAllowedError") return "access to the camera was denied: allow it for this site, or open a picture instead";
  if (name === "NotFoundError" || name === "OverconstrainedError") return "no camera was found: open a picture instead";
  if (name === "NotReadableError") return "the camera is in use by another program: close that, or open a picture instead";
  return `the camera cannot be started (${String(error)}): open a picture instead`;
}
