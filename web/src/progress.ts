/**
 * Progress: events in the shape that users of transformers.js know, with totals from the manifest, so that the sum never
 * passes 100 % and never runs backwards.
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
  private shown = 0;
  private readonly callback: ProgressCallback;

  /** @param callback - What it throws is reported, and stops nothing. */
  constructor(callback: ProgressCallback | undefined) {
    this.callback = (event) => {
      try {
        callback?.(event);
      } catch (error) {
        reportError(error);
      }
    };
  }

  expect(file: string, size: number): void {
    if (this.sizes.has(file)) return;
    this.sizes.set(file, size);
    this.tell("initiate", file, 0, size);
  }

  at(file: string, loaded: number, fromCache: boolean): void {
    const size = this.sizes.get(file) ?? 0;
    const now = Math.min(loaded, size);
    if (!this.loaded.has(file)) this.tell("download", file, 0, size, fromCache);
    this.loaded.set(file, Math.max(now, this.loaded.get(file) ?? 0));
    this.tell("progress", file, now, size, fromCache);
    this.total();
    if (now === size) this.tell("done", file, size, size, fromCache);
  }

  ready(): void {
    const total = sum(this.sizes);
    this.tell("ready", "", total, total);
  }

  private total(): void {
    const [loaded, total] = [sum(this.loaded), sum(this.sizes)];
    // A fallback adds a file, and the share would drop: it waits instead.
    this.shown = Math.max(this.shown, total === 0 ? 0 : loaded / total);
    this.callback({ status: "progress_total", file: "", loaded, total, progress: 100 * this.shown, fromCache: false });
  }

  private tell(status: ProgressEvent["status"], file: string, loaded: number, total: number, fromCache = false): void {
    const progress = total === 0 ? 100 : (100 * loaded) / total;
    this.callback({ status, file, loaded, total, progress, fromCache });
  }
}

function sum(sizes: ReadonlyMap<string, number>): number {
  return [...sizes.values()].reduce((a, b) => a + b, 0);
}
