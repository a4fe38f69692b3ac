/** ImagePicker: the sample pictures, and pictures and videos that the user opens, drops or pastes. */
import { ImageError, decode } from "../src/index";
import { createElement, element } from "./dom";
import type { Examples } from "./query_field";

/** One sample, as samples.json lists it. */
export interface Sample {
  readonly file: string;
  readonly query: string;
  readonly title: string;
  /** Queries that the picture answers. */
  readonly queries?: readonly string[];
  /** Whether the picture rightly does not answer `query`: it shows what a miss looks like. */
  readonly absent?: boolean;
  /** Authors and licences of the photographs from which the picture was adapted. */
  readonly credit?: string;
  /** The query's vector, float32 in little endian and base64; the first sample has it, so that its answer waits for less. */
  readonly vector?: string;
}

export interface ChosenImage {
  readonly picture: ImageBitmap;
  /** Name of the sample, for the URL; empty for the user's own pictures. */
  readonly sample: string;
  readonly query: string;
  readonly examples: Examples;
}

/** samples.json: `trained_on` says what the model has seen, for the sentence of a miss. */
interface Samples {
  readonly samples: readonly Sample[];
  readonly trained_on?: string;
}

/** Longest side of the displayed picture, in pixels. */
const MAX_SIDE = 1280;

export class ImagePicker {
  private readonly strip = element("#strip", HTMLElement);
  private readonly file = element("#file", HTMLInputElement);
  private readonly credit = element("#credit", HTMLElement);
  private samples: readonly Sample[] = [];
  private base = "";
  private chosen: Sample | undefined;
  /** The picture of the chosen sample. */
  private picture: ImageBitmap | undefined;
  private trainedOn = "";
  private latestLoad = 0;
  /** Whether something was asked since the picture that is loading was chosen. */
  private overtaken = false;

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

  /** List the bundle's samples, and load the one with that name, or the first. @param query - Instead of its own, if not empty. */
  async start(base: string, name: string, query: string): Promise<void> {
    this.base = base;
    const response = await fetch(new URL("samples.json", base));
    const listed: Samples = response.ok ? ((await response.json()) as Samples) : { samples: [] };
    this.samples = listed.samples;
    this.trainedOn = listed.trained_on ?? "";
    this.strip.append(...this.samples.map((sample) => this.sampleTile(sample)));
    const first = this.samples.find((s) => sampleName(s) === name) ?? this.samples[0];
    if (first) await this.loadSample(first, query || first.query, this.overtaken);
  }

  /** Load a sample by its name, with another query than its own. */
  async choose(name: string, query: string): Promise<void> {
    const sample = this.samples.find((s) => sampleName(s) === name);
    if (sample) await this.loadSample(sample, query);
  }

  /** Why a query may not be found in the picture: it is not there, or looks like nothing that the model has seen. */
  reasonOfMiss(query: string): string {
    if (this.chosen?.absent && query === this.chosen.query) return "That is right: this picture has none, to show what a miss looks like.";
    return this.trainedOn && `The model was trained on ${this.trainedOn}: it may miss what looks different.`;
  }

  /** The address of the sample that is shown; undefined for the user's own picture. */
  get address(): string | undefined {
    return this.chosen && new URL(this.chosen.file, this.base).href;
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

  private sampleTile(sample: Sample): HTMLElement {
    const image = createElement("img", "", { "data-src": new URL(sample.file, this.base).href, alt: "", width: "72", height: "72", decoding: "async", loading: "lazy", fetchpriority: "low" });
    const tile = createElement("button", [image], { type: "button", class: "tile", "aria-label": `Sample: ${sample.title}${sample.absent ? ", which is not in it" : ""}`, "aria-pressed": "false", "data-sample": sampleName(sample) });
    tile.addEventListener("click", () => void this.loadSample(sample));
    return tile;
  }

  /** Load a sample; the one that is shown is there at once, so that what is asked next is not overtaken by it. */
  private loadSample(sample: Sample, query = sample.query, overtaken = false): Promise<void> {
    this.overtaken = overtaken;
    if (sample === this.chosen && this.picture) {
      this.latestLoad++;
      this.choosePicture(this.picture, sample, query);
      return Promise.resolve();
    }
    return this.loadImage(fetchSample(sample, this.base), sample.file, sample, query);
  }

  /** Load a picture, unless another one is chosen in the meantime. */
  private async loadImage(file: Blob | Promise<Blob>, name: string, sample?: Sample, query = ""): Promise<void> {
    const load = ++this.latestLoad;
    try {
      const picture = await decode(await file, MAX_SIDE, name);
      if (load !== this.latestLoad) return;
      this.choosePicture(picture, sample, query);
    } catch (error) {
      if (load === this.latestLoad) this.onerror(error);
    }
  }

  private choosePicture(picture: ImageBitmap, sample: Sample | undefined, query: string): void {
    this.mark(sample);
    this.picture = picture;
    this.onchosen({ picture, sample: sample ? sampleName(sample) : "", query: this.overtaken ? "" : query, examples: examplesOf(sample) });
  }

  /** Whether a sample is shown, and not only loading. */
  shows(name: string): boolean {
    return this.chosen !== undefined && sampleName(this.chosen) === name;
  }

  /** Something is asked: a picture that is still loading comes without its own query. */
  overtake(): void {
    this.overtaken = true;
  }

  /** Keep what is shown: a picture that is still loading is not wanted any more. */
  keep(): void {
    this.latestLoad++;
  }

  /** Choose none of the samples: something else is shown. */
  leave(): void {
    this.keep();
    this.mark(undefined);
  }

  private loadFile(file: File): void {
    if (file.type.startsWith("video/")) this.onvideo(file);
    else void this.loadImage(file, file.name);
  }

  private mark(sample: Sample | undefined): void {
    this.chosen = sample;
    this.credit.textContent = sample?.credit ?? "";
    this.credit.hidden = !sample?.credit;
    const chosen = sample && sampleName(sample);
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

function examplesOf(sample: Sample | undefined): Examples {
  const queries = sample?.queries ?? (sample?.query ? [sample.query] : []);
  return { queries, ...(sample?.absent ? { absent: sample.query } : {}) };
}

function sampleName(sample: Sample): string {
  return sample.file.replace(/^.*\//, "").replace(/\.\w+$/, "");
}

/** Float32 values from their bytes, little-endian on every host. */
function floats(bytes: Uint8Array<ArrayBuffer>): Float32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const table = new Float32Array(bytes.byteLength / 4);
  for (let i = 0; i < table.length; i++) table[i] = view.getFloat32(4 * i, true);
  return table;
}
