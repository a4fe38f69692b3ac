/**
 * Progress: events with the fields of transformers.js. The totals come from the manifest, so that the progress never
 * exceeds 100 % and never decreases.
 */
export interface ProgressEvent {
  readonly status: "initiate" | "download" | "progress" | "progress_total" | "done" | "ready";
  /** Path in the bundle; empty for progress_total and ready. */
  readonly file: string;
  readonly loaded: number;
  readonly total: number;
  /** Percent. */
  readonly progress: number;
  readonly fromCache: boolean;
}

export type ProgressCallback = (event: ProgressEvent) => void;

export class Progress {
  private readonly sizes = new Map<string, number>();
  private readonly loaded = new Map<string, number>();
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

  addFile(file: string, size: number): void {
    if (this.sizes.has(file)) return;
    this.sizes.set(file, size);
    this.emit("initiate", file, 0, size);
  }

  update(file: string, loaded: number, fromCache: boolean): void {
    const size = this.sizes.get(file) ?? 0;
    const now = Math.min(loaded, size);
    if (!this.loaded.has(file)) this.emit("download", file, 0, size, fromCache);
    this.loaded.set(file, Math.max(now, this.loaded.get(file) ?? 0));
    this.emit("progress", file, now, size, fromCache);
    this.emitTotal();
    if (now === size) this.emit("done", file, size, size, fromCache);
  }

  finish(): void {
    const total = sum(this.sizes);
    this.emit("ready", "", total, total);
  }

  private emitTotal(): void {
    const [loaded, total] = [sum(this.loaded), sum(this.sizes)];
    // A fallback adds a file, which would lower the share: the shown share stays the same instead.
    this.shownShare = Math.max(this.shownShare, total === 0 ? 0 : loaded / total);
    this.callback({ status: "progress_total", file: "", loaded, total, progress: 100 * this.shownShare, fromCache: false });
  }

  private emit(status: ProgressEvent["status"], file: string, loaded: number, total: number, fromCache = false): void {
    const progress = total === 0 ? 100 : (100 * loaded) / total;
    this.callback({ status, file, loaded, total, progress, fromCache });
  }
}

function sum(sizes: ReadonlyMap<string, number>): number {
  return [...sizes.values()].reduce((a, b) => a + b, 0);
}
