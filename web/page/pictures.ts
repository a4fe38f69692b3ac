/** Pictures: the samples, and whatever is opened, dropped, pasted or photographed. */
import { ImageError, decode } from "../src/index";
import { shoot } from "./camera";
import { element, make } from "./element";

/** One sample, as samples.json lists it. */
export interface Sample {
  readonly file: string;
  readonly query: string;
  readonly title: string;
}

export interface Chosen {
  readonly picture: ImageBitmap;
  /** Name of the sample, for the address; empty for the user's own pictures. */
  readonly sample: string;
  readonly query: string;
}

/** Longest side that the page shows and keeps, in pixels. */
const LONGEST = 1280;

export class Pictures {
  private readonly strip = element("#strip", HTMLElement);
  private readonly file = element("#file", HTMLInputElement);
  private samples: readonly Sample[] = [];
  private turn = 0;

  constructor(
    private readonly onchosen: (chosen: Chosen) => void,
    private readonly onerror: (error: unknown) => void,
  ) {
    element("#open", HTMLButtonElement).addEventListener("click", () => {
      this.file.click();
    });
    this.file.addEventListener("change", () => {
      const [first] = this.file.files ?? [];
      if (first) void this.take(first, first.name);
      this.file.value = "";
    });
    element("#shoot", HTMLButtonElement).addEventListener("click", () => {
      shoot().then((photo) => {
        if (photo) void this.take(photo, "the photograph");
      }, this.onerror);
    });
    this.listen();
  }

  /** List the bundle's samples, and choose the one of that name or the first. Returns their queries. */
  async start(base: string, name: string): Promise<readonly string[]> {
    const response = await fetch(new URL("samples.json", base));
    this.samples = response.ok ? ((await response.json()) as { samples: Sample[] }).samples : [];
    this.strip.append(...this.samples.map((sample) => this.tile(sample, base)));
    const first = this.samples.find((s) => sampleName(s) === name) ?? this.samples[0];
    if (first) await this.pick(first, base);
    return this.samples.map((s) => s.query);
  }

  private tile(sample: Sample, base: string): HTMLElement {
    const image = make("img", "", { src: new URL(sample.file, base).href, alt: "", width: "72", height: "72", decoding: "async", loading: "lazy", fetchpriority: "low" });
    const tile = make("button", [image], { type: "button", class: "tile", "aria-label": `Sample: ${sample.title}`, "aria-pressed": "false", "data-sample": sampleName(sample) });
    tile.addEventListener("click", () => void this.pick(sample, base));
    return tile;
  }

  private pick(sample: Sample, base: string): Promise<void> {
    return this.take(fetchSample(sample, base), sample.file, sample);
  }

  /** Show a picture, unless another one is chosen before it is there. */
  private async take(file: Blob | Promise<Blob>, name: string, sample?: Sample): Promise<void> {
    const turn = ++this.turn;
    try {
      const picture = await decode(await file, LONGEST, name);
      if (turn !== this.turn) return;
      const chosen = sample ? sampleName(sample) : "";
      for (const tile of this.strip.querySelectorAll("[data-sample]")) {
        tile.setAttribute("aria-pressed", String(tile.getAttribute("data-sample") === chosen));
      }
      this.onchosen({ picture, sample: chosen, query: sample?.query ?? "" });
    } catch (error) {
      if (turn === this.turn) this.onerror(error);
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
      if (file) void this.take(file, file.name);
      else this.onerror(new ImageError("what was dropped is no file: save the picture first, then drop the file"));
    });
    addEventListener("paste", (event) => {
      const file = [...(event.clipboardData?.files ?? [])].find((f) => f.type.startsWith("image/"));
      if (!file) return; // text into the query field
      event.preventDefault();
      void this.take(file, "the pasted picture");
    });
  }
}

async function fetchSample({ file }: Sample, base: string): Promise<Blob> {
  const response = await fetch(new URL(file, base)).catch(() => undefined);
  if (response?.ok) return response.blob();
  const why = response ? `the server answered ${String(response.status)}` : "check the connection";
  throw new ImageError(`the sample ${file} cannot be fetched: ${why}`);
}

function sampleName(sample: Sample): string {
  return sample.file.replace(/^.*\//, "").replace(/\.\w+$/, "");
}
