/**
 * LivePicture: a camera or a video, frame by frame. One frame is answered at a time; those that come meanwhile are dropped.
 *
 * It waits while the page is hidden, and ends, with the camera, when the page is left.
 */
import { ImageError } from "../src/index";
import { openCamera } from "./camera";
import { element } from "./dom";
import { FrameRate, type Rate } from "./frame_rate";

const LONGEST = 640; // pixels of a frame's longer side: models take less, and the page shows little more

interface Hooks {
  /** Show a frame with its answer; settles when it is shown. @returns Whether it has an answer. */
  readonly onframe: (frame: ImageBitmap) => Promise<boolean>;
  readonly onrate: (rate: Rate) => void;
  readonly onstart: () => void;
  readonly onstop: () => void;
  readonly onerror: (error: unknown) => void;
  /** Whether a frame is still shown somewhere; the others are released. */
  readonly shows: (frame: ImageBitmap) => boolean;
}

export class LivePicture {
  private readonly video = element("#live-video", HTMLVideoElement);
  private release: (() => void) | undefined;
  private frames: readonly ImageBitmap[] = [];
  /** Whether the permission request is open. */
  private requesting = false;

  constructor(private readonly hooks: Hooks) {
    document.addEventListener("visibilitychange", () => { this.followPage(); });
    addEventListener("pagehide", () => { this.stop(); });
  }

  get on(): boolean {
    return this.release !== undefined;
  }

  /** Show the camera's picture, or end what is live. @throws ImageError if there is none, or if it may not be used. */
  async toggleCamera(): Promise<void> {
    if (this.on) this.stop();
    else if (!this.requesting) await this.startCamera();
  }

  /** Show a video, again and again. @throws ImageError if the browser cannot play it. */
  async startVideo(file: Blob, name: string): Promise<void> {
    const url = URL.createObjectURL(file);
    try {
      await this.start(() => { this.video.src = url; }, () => { URL.revokeObjectURL(url); });
    } catch (error) {
      throw new ImageError(`this browser cannot play ${name} (${error instanceof Error ? error.message : String(error)})`);
    }
  }

  stop(): void {
    if (!this.release) return;
    this.release();
    this.release = undefined;
    this.frames = [];
    this.video.pause();
    this.video.srcObject = null;
    this.video.removeAttribute("src");
    this.hooks.onstop();
  }

  private async startCamera(): Promise<void> {
    this.requesting = true;
    const stream = await openCamera().finally(() => (this.requesting = false));
    const tracks = stream.getTracks();
    for (const track of tracks) {
      track.addEventListener("ended", () => {
        if (this.video.srcObject !== stream) return;
        this.stop();
        this.hooks.onerror(new ImageError("the camera ended its picture: it was unplugged, or its permission was withdrawn"));
      });
    }
    await this.start(() => { this.video.srcObject = stream; }, () => { for (const track of tracks) track.stop(); });
  }

  private async start(open: () => void, release: () => void): Promise<void> {
    this.stop();
    this.release = release;
    try {
      open();
      await this.video.play();
    } catch (error) {
      if (this.release !== release) return; // another choice interrupted it
      this.release = undefined;
      release();
      throw error;
    }
    this.hooks.onstart();
    this.followPage();
    void this.answerFrames(release);
  }

  private async answerFrames(started: () => void): Promise<void> {
    const rate = new FrameRate(this.hooks.onrate);
    const stopped = (): boolean => this.release !== started;
    for (;;) {
      await nextFrame(this.video);
      if (stopped()) return;
      const taken = performance.now();
      const frame = await takeFrame(this.video).catch(() => undefined); // between two sizes of a stream
      if (stopped()) return;
      if (!frame) continue;
      this.frames = [...this.frames, frame];
      const answered = await this.hooks.onframe(frame);
      if (stopped()) return;
      if (answered) rate.count(taken, performance.now());
      this.closeFrames();
    }
  }

  private closeFrames(): void {
    const [kept, gone] = [this.frames.filter(this.hooks.shows), this.frames.filter((frame) => !this.hooks.shows(frame))];
    for (const frame of gone) frame.close();
    this.frames = kept;
  }

  /** A page that nobody sees takes no pictures. */
  private followPage(): void {
    if (!this.on) return;
    const { srcObject } = this.video;
    if (srcObject instanceof MediaStream) for (const track of srcObject.getTracks()) track.enabled = !document.hidden;
    if (document.hidden) this.video.pause();
    else void this.video.play().catch(() => undefined); // stopped meanwhile
  }
}

/** The video's next frame; where the browser does not tell of frames, the screen's. A paused video has none. */
function nextFrame(video: HTMLVideoElement): Promise<void> {
  const known = video as { requestVideoFrameCallback?: (told: () => void) => number }; // not in Firefox before 132
  return new Promise((resolve) => {
    if (known.requestVideoFrameCallback) {
      known.requestVideoFrameCallback(resolve);
      return;
    }
    const look = (): void => {
      if (video.paused || video.readyState < HTMLMediaElement.HAVE_CURRENT_DATA) requestAnimationFrame(look);
      else resolve();
    };
    requestAnimationFrame(look);
  });
}

function takeFrame(video: HTMLVideoElement): Promise<ImageBitmap> {
  const scale = Math.min(1, LONGEST / Math.max(video.videoWidth, video.videoHeight));
  const [resizeWidth, resizeHeight] = [video.videoWidth, video.videoHeight].map((side) => Math.max(1, Math.round(side * scale)));
  if (scale === 1 || !resizeWidth || !resizeHeight) return createImageBitmap(video);
  return createImageBitmap(video, { resizeWidth, resizeHeight, resizeQuality: "medium" });
}
