/**
 * Progress: events with the fields of transformers.js, in bytes on the wire.
 *
 * A browser tells how many decoded bytes of a compressed file have arrived, and by `content-length` how many it sends
 * compressed. So the share of a file is that of its decoded bytes, whose number the manifest has, and its bytes are that
 * share of what is sent. The progress never exceeds 100 % and never decreases.
 */
import type { BundleFile } from "./manifest.js";

export interface ProgressEvent {
  readonly status: "initiate" | "download" | "progress" | "progress_total" | "done" | "ready";
  /** Path in the bundle; empty for progress_total and ready. */
  readonly file: string;
  /** Bytes as they are sent; of a file whose server does not say how many these are, as the manifest has them. */
  readonly loaded: number;
  readonly total: number;
  /** Percent. */
  readonly progress: number;
  readonly fromCache: boolean;
}

export type ProgressCallback = (event: ProgressEvent) => void;

export class Progress {
  private readonly files = new Map<string, Transfer>();
  private shownShare = 0;
  private readonly callback: ProgressCallback;

  /** @param callback - An exception that it throws is reported and does not stop the download. */
  constructor(callback: ProgressCallback | undefined) {
    this.callback = (event) => {
      try {
        callback?.(event);
      } catch (error) {
        if (typeof reportError === "function") reportError(error);
        else console.error(error); // Node
      }
    };
  }

  /** Expect a file. Its smallest form is the first guess of what is sent. */
  addFile(file: Pick<BundleFile, "path" | "size" | "brotli" | "gzip">): void {
    const { path, size } = file;
    if (this.files.has(path)) return;
    const sent = file.brotli ?? file.gzip ?? size;
    this.files.set(path, { size, sent, share: 0, begun: false });
    this.emit("initiate", path, 0, sent);
  }

  /**
   * @param loaded - Decoded bytes so far.
   * @param sent - Bytes that the server sends for the whole file, where it says so.
   */
  update(file: string, loaded: number, fromCache: boolean, sent?: number): void {
    const transfer = this.files.get(file);
    if (!transfer) return;
    if (fromCache) transfer.sent = transfer.size;
    else if (sent !== undefined) transfer.sent = sent;
    if (!transfer.begun) this.emit("download", file, 0, transfer.sent, fromCache);
    transfer.begun = true;
    transfer.share = Math.max(transfer.share, transfer.size === 0 ? 1 : Math.min(1, loaded / transfer.size));
    this.emit("progress", file, arrived(transfer), transfer.sent, fromCache);
    this.emitTotal();
    if (transfer.share === 1) this.emit("done", file, transfer.sent, transfer.sent, fromCache);
  }

  finish(): void {
    const total = sum([...this.files.values()].map(({ sent }) => sent));
    this.emit("ready", "", total, total);
  }

  private emitTotal(): void {
    const files = [...this.files.values()];
    const [loaded, total] = [sum(files.map(arrived)), sum(files.map(({ sent }) => sent))];
    // A fallback adds a file, which would lower the share: the shown share stays the same instead.
    this.shownShare = Math.max(this.shownShare, total === 0 ? 0 : loaded / total);
    this.callback({ status: "progress_total", file: "", loaded, total, progress: 100 * this.shownShare, fromCache: false });
  }

  private emit(status: ProgressEvent["status"], file: string, loaded: number, total: number, fromCache = false): void {
    const progress = total === 0 ? 100 : (100 * loaded) / total;
    this.callback({ status, file, loaded, total, progress, fromCache });
  }
}

interface Transfer {
  /** Bytes of the file. */
  readonly size: number;
  /** Bytes that are sent for it. */
  sent: number;
  /** Of the file that has arrived, in [0, 1]. */
  share: number;
  begun: boolean;
}

function arrived({ share, sent }: Transfer): number {
  return Math.round(share * sent);
}

function sum(sizes: readonly number[]): number {
  return sizes.reduce((a, b) => a + b, 0);
}
