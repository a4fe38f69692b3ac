/** TensorPage: a model that takes no picture: its inputs as values that can be changed, and what it answers. */
import { EdgekitError, type Manifest, type RawTensor, type Runner, UsageError } from "../src/index";
import type { AnswerPanel } from "./answer_panel";
import { codeOfTensors, showCode } from "./code_panel";
import { onButton } from "./controls";
import { setRunningStatus } from "./device_panel";
import { createElement, element } from "./dom";
import { parseNpy } from "./npy";
import { copyText } from "./result_actions";
import { type Example, type Tensors, examplesOf, largestDifference } from "./tensor_examples";
import { castTensor, isWritable, parseTensorText, tensorText } from "./tensor_text";
import { describe, numbers } from "./tensor_words";

const WRITTEN = 2048; // values of an input that are written out; a larger one comes from a file
const ROWS = 10; // of a field at the most

export class TensorPage {
  private inputs: Tensors = {};
  private example: Example | undefined;
  private outputs: Tensors = {};
  private latest = 0;
  private runner: Runner | undefined;

  /** @param onerror - Called where something else than the values is wrong. */
  constructor(private readonly answers: AnswerPanel, private readonly onerror: (error: unknown) => void) {
    onButton("run-tensors", () => this.run(), onerror);
    onButton("copy-outputs", async () => {
      const copied = await copyText(JSON.stringify(Object.fromEntries(Object.entries(this.outputs).map(([name, output]) => [name, { ...output, data: numbers(output.data) }]))));
      this.say(copied ? "Copied." : "The browser does not allow copying.");
    }, onerror);
  }

  /** Ask a runner, the first one the first example. */
  async open(runner: Runner): Promise<void> {
    this.runner = runner;
    if (!this.example) {
      const examples = await examplesOf(runner.bundle);
      this.listExamples(examples);
      if (examples[0]) this.choose(examples[0]);
    }
    await this.run();
  }

  private get manifest(): Manifest | undefined {
    return this.runner?.bundle.manifest;
  }

  private listExamples(examples: readonly Example[]): void {
    const buttons = examples.map((example) => {
      const button = createElement("button", example.name, { type: "button", "aria-pressed": "false" });
      button.addEventListener("click", () => {
        this.choose(example);
        this.run().catch(this.onerror);
      });
      return button;
    });
    element("#tensor-examples", HTMLElement).replaceChildren(...buttons);
  }

  private choose(example: Example): void {
    this.example = example;
    this.inputs = example.inputs;
    for (const button of document.querySelectorAll("#tensor-examples button")) button.setAttribute("aria-pressed", String(button.textContent === example.name));
    element("#tensor-inputs", HTMLElement).replaceChildren(...(this.manifest?.inputs ?? []).map((input) => this.field(input)));
    this.say("");
  }

  /** An input: its name, type and sizes, its values, and a file in their place. */
  private field({ name, dtype, shape }: Manifest["inputs"][number]): HTMLElement {
    const tensor = this.inputs[name];
    const id = `tensor-${name}`;
    const sizes = shape.map((size) => (typeof size === "string" ? sizeWords(size, this.manifest) : String(size))).join(" x ");
    const label = createElement("label", name, { for: id });
    const facts = createElement("p", `${dtype}, ${sizes}`, { class: "small" });
    const area = createElement("textarea", "", { id, spellcheck: "false", "aria-describedby": `${id}-facts` });
    facts.id = `${id}-facts`;
    const file = createElement("input", "", { type: "file", accept: ".npy,.json", "aria-label": `File with ${name}: .npy or .json` });
    const show = (now: RawTensor | undefined): void => {
      const written = now !== undefined && isWritable(dtype) && numbers(now.data).length <= WRITTEN;
      area.readOnly = !written;
      area.value = now === undefined ? "" : written ? tensorText(now) : `${describe(now)}: too many to write here, load a file to change them`;
      area.rows = Math.min(ROWS, area.value.split("\n").length + Math.floor(area.value.length / 90) + 1);
    };
    show(tensor);
    area.addEventListener("input", () => { this.change(name, () => parseTensorText(area.value, name, dtype)); });
    file.addEventListener("change", () => {
      const [first] = file.files ?? [];
      if (first) this.load(first, name, dtype).then(show, this.refuse);
    });
    return createElement("div", [label, facts, area, file], { class: "tensor" });
  }

  private async load(file: File, name: string, dtype: string): Promise<RawTensor> {
    const bytes = new Uint8Array(await file.arrayBuffer());
    const tensor = file.name.endsWith(".json") ? parseTensorText(new TextDecoder().decode(bytes), name, dtype) : castTensor(parseNpy(bytes, file.name), name, dtype);
    this.change(name, () => tensor);
    return tensor;
  }

  /** Take a changed input; what is wrong with it is said beside the button. */
  private change(name: string, read: () => RawTensor): void {
    this.latest++; // what runs now is an answer to other values
    for (const button of document.querySelectorAll("#tensor-examples button")) button.setAttribute("aria-pressed", "false");
    try {
      this.inputs = { ...this.inputs, [name]: read() };
      this.say("Changed: press Run.");
      element("#run-tensors", HTMLButtonElement).disabled = false;
    } catch (error) {
      element("#run-tensors", HTMLButtonElement).disabled = true;
      this.refuse(error);
    }
  }

  private async run(): Promise<void> {
    const { runner, inputs, example } = this;
    if (!runner) throw new UsageError("the model is not loaded yet");
    const now = ++this.latest;
    try {
      const start = performance.now();
      const outputs = await runner.feed(inputs);
      if (now !== this.latest) return;
      this.show(runner, outputs, performance.now() - start);
      const expected = inputs === example?.inputs ? example.expected : undefined;
      this.say(expected ? `Largest difference from what the model itself answered: ${largestDifference(expected, outputs).toExponential(1)}.` : "Answered.");
    } catch (error) {
      if (now === this.latest) this.refuse(error);
    }
  }

  private show(runner: Runner, outputs: Tensors, ms: number): void {
    const { manifest } = runner.bundle;
    this.outputs = outputs;
    const named = Object.entries(outputs).map(([name, output]) => [name, { ...output, role: manifest.outputs.find((o) => o.name === name)?.role ?? "tensor" }] as const);
    this.answers.show({ outputs: Object.fromEntries(named) }, manifest);
    setRunningStatus(runner.info, ms);
    const shapes = Object.fromEntries(Object.entries(this.inputs).map(([name, { shape }]) => [name, shape]));
    showCode(codeOfTensors(runner.bundle.url, manifest.inputs, shapes));
  }

  /** Say what is wrong with the values; anything else is not the values' fault. */
  private readonly refuse = (error: unknown): void => {
    if (error instanceof EdgekitError && error.code === "SHAPE") this.say(`${error.message.charAt(0).toUpperCase()}${error.message.slice(1)}.`);
    else this.onerror(error);
  };

  private say(text: string): void {
    element("#tensor-message", HTMLElement).textContent = text;
  }
}

function sizeWords(size: string, manifest: Manifest | undefined): string {
  const axis = manifest?.axes[size];
  if (!axis) return size;
  if (!axis.dynamic) return `${size} ${String(axis.default)}`;
  return `${size} ${String(axis.minimum)} to ${String(axis.maximum)}${axis.multiple_of > 1 ? ` in steps of ${String(axis.multiple_of)}` : ""}`;
}
