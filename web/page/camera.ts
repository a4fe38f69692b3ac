/** Camera: one photograph, or null when the user thinks better of it. */
import { ImageError } from "../src/index";
import { context2d, element } from "./element";

/** Whether the browser is asking for permission. */
let busy = false;

export async function shoot(): Promise<Blob | null> {
  // Plain http has no cameras, whatever the types say.
  const devices = navigator.mediaDevices as MediaDevices | undefined;
  if (!devices) throw new ImageError("this page gets no camera here: it needs https or localhost");
  const dialog = element("#camera", HTMLDialogElement);
  if (busy || dialog.open) return null;
  busy = true;
  let stream: MediaStream;
  try {
    stream = await devices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1280 } } });
  } catch (error) {
    throw new ImageError(cause(error));
  } finally {
    busy = false;
  }
  const video = element("video", HTMLVideoElement, dialog);
  try {
    video.srcObject = stream;
    dialog.showModal();
    await video.play();
    return (await answer(dialog)) ? await still(video) : null;
  } finally {
    dialog.close();
    video.srcObject = null;
    for (const track of stream.getTracks()) track.stop();
  }
}

/** Whether the user takes the picture. */
function answer(dialog: HTMLDialogElement): Promise<boolean> {
  return new Promise((resolve) => {
    dialog.onclick = (event) => {
      if (event.target instanceof HTMLButtonElement) resolve(event.target.value === "take");
    };
    dialog.oncancel = () => {
      resolve(false);
    };
  });
}

function cause(error: unknown): string {
  const name = error instanceof DOMException ? error.name : "";
  if (name === "NotAllowedError") return "the camera was not allowed: allow it for this site, or open a picture instead";
  if (name === "NotFoundError" || name === "OverconstrainedError") return "there is no camera here: open a picture instead";
  return `the camera does not start (${String(error)}): open a picture instead`;
}

async function still(video: HTMLVideoElement): Promise<Blob | null> {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
  context2d(canvas).drawImage(video, 0, 0);
  return new Promise((resolve) => {
    canvas.toBlob(resolve, "image/png");
  });
}
