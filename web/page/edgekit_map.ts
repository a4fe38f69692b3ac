/**
 * <edgekit-map>: a picture and its relevance map, for any page.
 *
 *     <script type="module" src="./bundle/edgekit-map.js"></script>
 *     <edgekit-map bundle="./bundle/" image="./photo.jpg" query="red circle"></edgekit-map>
 *
 * `view` is "heat", "focus", "tokens" or "picture". Each result is an event "result" with the library's result as its
 * detail, each failure an event "error" with the error. Elements of one bundle share one runner.
 */
import { type Result, type Runner, decode, load } from "../src/index";
import { answerSentence } from "./answer_words";
import { type View, mapOf, renderMap } from "./map_renderer";

const LONGEST = 1280; // pixels of the picture's longer side
const STYLE = ":host { display: block } canvas { display: block; width: 100%; border-radius: 10px } p { margin: 0.5em 0 0; font: inherit }";
const VIEWS: readonly string[] = ["heat", "focus", "tokens", "picture"];

const runners = new Map<string, Promise<Runner>>();

export class EdgekitMap extends HTMLElement {
  static readonly observedAttributes = ["bundle", "image", "query", "view"];
  private readonly canvas = document.createElement("canvas");
  private readonly line = document.createElement("p");
  private picture: ImageBitmap | undefined;
  private shown: Result | undefined;
  private threshold: number | null = null;
  /** Counts what was asked: an answer to something older is not shown. */
  private asked = 0;

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
    root.adoptedStyleSheets = [sheet];
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("part", "map");
    this.line.setAttribute("part", "answer");
    this.line.setAttribute("role", "status");
    root.append(this.canvas, this.line);
  }

  attributeChangedCallback(name: string): void {
    if (name === "view") this.draw();
    else void this.ask();
  }

  private async ask(): Promise<void> {
    const now = ++this.asked;
    const [bundle, image, query] = ["bundle", "image", "query"].map((name) => this.getAttribute(name));
    this.shown = undefined;
    this.line.textContent = "";
    this.draw();
    if (!bundle || !image) return;
    await Promise.resolve(); // attributes that are set together are one question
    if (now !== this.asked) return;
    try {
      const runner = await runnerOf(new URL(bundle, document.baseURI).href);
      const response = await fetch(new URL(image, document.baseURI));
      const picture = await decode(await response.blob(), LONGEST, image);
      const result = await runner.run({ image: picture, size: runner.fittingSize(picture), ...(query ? { query } : {}) });
      if (now !== this.asked) return;
      [this.picture, this.shown, this.threshold] = [picture, result, runner.threshold];
      this.line.textContent = result.relevance.length > 0 ? answerSentence(result, query ?? "", runner.threshold) : "";
      this.canvas.setAttribute("aria-label", `${query ? `Relevance map for “${query}”` : "Relevance map"}: ${this.line.textContent}`);
      this.draw();
      this.dispatchEvent(new CustomEvent("result", { detail: result }));
    } catch (error) {
      if (now !== this.asked) return;
      this.line.textContent = error instanceof Error ? error.message : String(error);
      this.dispatchEvent(new ErrorEvent("error", { error, message: this.line.textContent }));
    }
  }

  private draw(): void {
    const { picture, shown, canvas } = this;
    if (!picture) return;
    [canvas.width, canvas.height] = [picture.width, picture.height];
    const given = this.getAttribute("view") ?? "";
    const map = shown && shown.relevance.length > 0 ? mapOf(shown, this.threshold) : undefined;
    renderMap(canvas, picture, map, VIEWS.includes(given) ? (given as View) : "heat");
  }
}

function runnerOf(bundle: string): Promise<Runner> {
  const loading = runners.get(bundle) ?? load(bundle);
  runners.set(bundle, loading);
  loading.catch(() => runners.delete(bundle)); // the next question tries again
  return loading;
}

customElements.define("edgekit-map", EdgekitMap);
