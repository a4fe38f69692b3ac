/** ImagePicker: the sample pictures, and pictures and videos that the user opens, drops or pastes. */
import { ImageError, decode } from "../src/index";
import { floats } from "../src/query_encoder";
import { element, createElement } from "./dom";

/** One sample, as samples.json lists it. */
export interface Sample {
  readonly file: string;
  readonly query: string;
  readonly title: string;
  /** The query's vector, float32 in little endian and base64; the first sample has it, so that its answer waits for less. */
  readonly vector?: string;
}

export interface ChosenImage {
  readonly picture: ImageBitmap;
  /** Name of the sample, for the URL; empty for the user's own pictures. */
  readonly sample: string;
  readonly query: string;
}

/** Longest side of the displayed picture, in pixels. */
const MAX_SIDE = 1280;

export class ImagePicker {
  private readonly strip = element("#strip", HTMLElement);
  private readonly file = element("#file", HTMLInputElement);
  private samples: readonly Sample[] = [];
  private latestLoad = 0;

  constructor(
    private readonly onchosen: (chosen: ChosenImage) => void,
    private readonly onvideo: (file: File) => void,
    private readonly onerror: (error: unknown) => void,
  ) {
    element("#open", HTMLButtonElement).addEventListener("click", () => {
      this.file.click();
    });
    this.file.addEventListener("change", () => {
      const [first] = this.file.files ?? [];
      if (first) this.loadFile(first);
      this.file.value = "";
    });
    this.listen();
  }

  /** List the bundle's samples, and load the one with that name, or the first. Returns their queries. */
  async start(base: string, name: string): Promise<readonly string[]> {
    const response = await fetch(new URL("samples.json", base));
    this.samples = response.ok ? ((await response.json()) as { samples: Sample[] }).samples : [];
    this.strip.append(...this.samples.map((sample) => this.sampleTile(sample, base)));
    const first = this.samples.find((s) => sampleName(s) === name) ?? this.samples[0];
    if (first) await this.loadSample(first, base);
    return this.samples.map((s) => s.query);
  }

  /** The vector of a sample's query, where the sample has it. */
  vectorOf(query: string): Float32Array | undefined {
    const vector = this.samples.find((sample) => sample.query === query)?.vector;
    return vector === undefined ? undefined : floats(Uint8Array.from(atob(vector), (letter) => letter.charCodeAt(0)));
  }

  /** Fetch the pictures of the tiles, which would delay the first answer. */
  showTiles(): void {
    for (const image of this.strip.querySelectorAll("img:not([src])")) {
      image.setAttribute("src", image.getAttribute("data-src") ?? "");
    }
  }

  private sampleTile(sample: Sample, base: string): HTMLElement {
    const image = createElement("img", "", { "data-src": new URL(sample.file, base).href, alt: "", width: "72", height: "72", decoding: "async", loading: "lazy", fetchpriority: "low" });
    const tile = createElement("button", [image], { type: "button", class: "tile", "aria-label": `Sample: ${sample.title}`, "aria-pressed": "false", "data-sample": sampleName(sample) });
    tile.addEventListener("click", () => void this.loadSample(sample, base));
    return tile;
  }

  private loadSample(sample: Sample, base: string): Promise<void> {
    return this.loadImage(fetchSample(sample, base), sample.file, sample);
  }

  /** Load a picture, unless another one is chosen in the meantime. */
  private async loadImage(file: Blob | Promise<Blob>, name: string, sample?: Sample): Promise<void> {
    const load = ++this.latestLoad;
    try {
      const picture = await decode(await file, MAX_SIDE, name);
      if (load !== this.latestLoad) return;
      const chosen = sample ? sampleName(sample) : "";
      this.mark(chosen);
      this.onchosen({ picture, sample: chosen, query: sample?.query ?? "" });
    } catch (error) {
      if (load === this.latestLoad) this.onerror(error);
    }
  }

  /** Choose none of the samples: something else is shown. */
  leave(): void {
    this.latestLoad++;
    this.mark("");
  }

  private loadFile(file: File): void {
    if (file.type.startsWith("video/")) this.onvideo(file);
    else void this.loadImage(file, file.name);
  }

  private mark(chosen: string): void {
    for (const tile of this.strip.querySelectorAll("[data-sample]")) {
      tile.setAttribute("aria-pressed", String(tile.getAttribute("data-sample") === chosen));
    }
  }

  private listen(): void {
    const body = document.body;
    addEventListener("dragover", (event) => {
      event.preventDefault();
      body.dataset.drop = "";
    });
    addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) delete body.dataset.drop;
    });
    addEventListener("drop", (event) => {
      event.preventDefault();
      delete body.dataset.drop;
      const [file] = event.dataTransfer?.files ?? [];
      if (file) this.loadFile(file);
      else this.onerror(new ImageError("the dropped item is not a file: save the picture first, then drop the file"));
    });
    addEventListener("paste", (event) => {
      const file = [...(event.clipboardData?.files ?? [])].find((f) => f.type.startsWith("image/"));
      if (!file) return; // text for the query field
      event.preventDefault();
      void this.loadImage(file, "the pasted picture");
    });
  }
}

async function fetchSample({ file }: Sample, base: string): Promise<Blob> {
  const response = await fetch(new URL(file, base)).catch(() => undefined);
  if (response?.ok) return response.blob();
  const reason = response ? `the server answered ${String(response.status)}` : "check the connection";
  throw new ImageError(`the sample ${file} cannot be fetched: ${reason}`);
}

function sampleName(sample: Sample): string {
  return sample.file.replace(/^.*\//, "").replace(/\.\w+$/, "");
}
