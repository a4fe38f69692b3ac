/** CodePanel: what this page does, in six lines for a page of one's own. */
import type { Manifest } from "../src/index";
import { onButton } from "./controls";
import { element } from "./dom";
import { copyText } from "./result_actions";

/** What the code asks: a picture by its address, or without one the first picture of the page that it is put into. */
export interface Question {
  readonly image: string | undefined;
  readonly query: string;
}

/** Six lines that answer a question with the bundle. */
export function codeOf(bundle: string, { image, query }: Question, scored: boolean): string {
  const picture = image === undefined ? 'document.querySelector("img")' : JSON.stringify(image);
  const asked = query === "" ? `image: ${picture}` : `image: ${picture}, query: ${JSON.stringify(query)}`;
  const shown = scored ? "result.present, Math.max(...result.relevance)" : "result.outputs";
  return lines(bundle, [`const result = await runner.run({ ${asked} });`, `console.log(${shown});`]);
}

const TYPES: Readonly<Record<string, string>> = { float32: "Float32Array", float64: "Float64Array", float16: "Uint16Array", bool: "Uint8Array", int64: "BigInt64Array", uint64: "BigUint64Array" };

/** Six lines that feed tensors. @param shapes - Of each input. */
export function codeOfTensors(bundle: string, inputs: Manifest["inputs"], shapes: Readonly<Record<string, readonly number[]>>): string {
  const fed = inputs.map(({ name, dtype }) => {
    const shape = shapes[name] ?? [];
    const array = TYPES[dtype] ?? `${dtype.charAt(0).toUpperCase().replace("U", "Ui")}${dtype.slice(dtype.startsWith("u") ? 2 : 1)}Array`;
    return `${JSON.stringify(name)}: { dtype: "${dtype}", shape: [${shape.join(", ")}], data: new ${array}(${String(shape.reduce((a, b) => a * b, 1))}) }`;
  });
  return lines(bundle, [`const outputs = await runner.feed({ ${fed.join(", ")} });`, "console.log(outputs); // of zeros: put your values in their place"]);
}

function lines(bundle: string, body: readonly string[]): string {
  // Written in two parts: no scanner of scripts takes this line for a script of the page.
  const [open, close] = ["<" + 'script type="module">', "<" + "/script>"];
  return [open, `import { load } from "${bundle}edgekit.js";`, `const runner = await load("${bundle}");`, ...body, close].join("\n");
}

export function showCode(code: string): void {
  element("#code", HTMLElement).textContent = code;
  element("#code-message", HTMLElement).textContent = "";
}

export function addCodeActions(onerror: (error: unknown) => void): void {
  onButton("copy-code", async () => {
    const copied = await copyText(element("#code", HTMLElement).textContent);
    element("#code-message", HTMLElement).textContent = copied ? "Copied." : "The browser does not allow copying: select the lines.";
  }, onerror);
}
