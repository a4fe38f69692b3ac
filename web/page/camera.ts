/** Camera: takes one photograph; null when the user cancels. */
import { ImageError } from "../src/index";
import { context2d, element } from "./dom";

/** Whether the permission request is open. */
let requesting = false;

export async function takePhoto(): Promise<Blob | null> {
  // Its type says that `mediaDevices` always exists; it does not on plain http.
  const devices = navigator.mediaDevices as MediaDevices | undefined;
  if (!devices) throw new ImageError("the camera is available only on https or localhost");
  const dialog = element("#camera", HTMLDialogElement);
  if (requesting || dialog.open) return null;
  requesting = true;
  let stream: MediaStream;
  try {
    stream = await devices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1280 } } });
  } catch (error) {
    throw new ImageError(failureReason(error));
  } finally {
    requesting = false;
  }
  const video = element("video", HTMLVideoElement, dialog);
  try {
    video.srcObject = stream;
    dialog.showModal();
    await video.play();
    return (await dialogResult(dialog)) ? await captureFrame(video) : null;
  } finally {
    dialog.close();
    video.srcObject = null;
    for (const track of stream.getTracks()) track.stop();
  }
}

/** Whether the user takes the picture. */
function dialogResult(dialog: HTMLDialogElement): Promise<boolean> {
  return new Promise((resolve) => {
    dialog.onclick = (event) => {
      if (event.target instanceof HTMLButtonElement) resolve(event.target.value === "take");
    };
    dialog.oncancel = () => {
      resolve(false);
    };
  });
}

function failureReason(error: unknown): string {
  const name = error instanceof DOMException ? error.name : "";
  if (name === "NotAllowedError") return "access to the camera was denied: allow it for this site, or open a picture instead";
  if (name === "NotFoundError" || name === "OverconstrainedError") return "no camera was found: open a picture instead";
  return `the camera cannot be started (${String(error)}): open a picture instead`;
}

async function captureFrame(video: HTMLVideoElement): Promise<Blob | null> {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
  context2d(canvas).drawImage(video, 0, 0);
  return new Promise((resolve) => {
    canvas.toBlob(resolve, "image/png");
  });
}
