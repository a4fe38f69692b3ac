/** TensorExamples: inputs to begin with: those of the golden vectors, or without them the middle of what is declared. */
import { fetchGolden, parseGolden } from "../src/golden";
import type { GoldenCase } from "../src/golden";
import type { Bundle, Manifest, RawTensor } from "../src/index";
import { sizeOf } from "../src/manifest";
import { normalise } from "../src/preprocessing";
import { castTensor, isWritable } from "./tensor_text";
import { numbers } from "./tensor_words";

export type Tensors = Readonly<Record<string, RawTensor>>;

export interface Example {
  readonly name: string;
  readonly inputs: Tensors;
  /** What the model itself answered; undefined where nobody asked it. */
  readonly expected: GoldenCase["expected"] | undefined;
}

/** @throws AssetError or HashError if the golden vectors cannot be fetched. */
export async function examplesOf(bundle: Bundle): Promise<readonly Example[]> {
  const { manifest } = bundle;
  if (manifest.bundle.golden === "") return [{ name: "the middle of the declared range", inputs: middle(manifest), expected: undefined }];
  const [json, binary] = await fetchGolden(bundle, undefined);
  return parseGolden(json, binary, bundle.url).cases.map((row) => ({ name: row.name, inputs: inputsOf(row, manifest), expected: row.expected }));
}

function inputsOf({ image, inputs }: GoldenCase, manifest: Manifest): Tensors {
  const picture = manifest.inputs.find((input) => input.kind === "image");
  if (!image || !picture) return inputs;
  const data = normalise(image, picture.low, picture.high);
  return { ...inputs, [picture.name]: { dtype: "float32", shape: [1, 3, image.height, image.width], data } };
}

function middle(manifest: Manifest): Tensors {
  const tensors = manifest.inputs.map(({ name, dtype, shape, low, high }): [string, RawTensor] => {
    const sizes = shape.map((size) => sizeOf(manifest, size) ?? 1);
    const count = sizes.reduce((a, b) => a * b, 1);
    if (!isWritable(dtype)) return [name, { dtype, shape: sizes, data: new Uint16Array(count) }];
    const value = dtype.startsWith("float") ? (low + high) / 2 : Math.floor((low + high) / 2);
    return [name, castTensor({ dtype: "", shape: sizes, data: new Float64Array(count).fill(value) }, name, dtype)];
  });
  return Object.fromEntries(tensors);
}

/** The largest difference from what the model itself answered, of the values that the golden vectors hold. */
export function largestDifference(expected: GoldenCase["expected"], outputs: Tensors): number {
  const differences = Object.entries(expected).map(([name, part]) => {
    const output = outputs[name];
    if (output?.shape.join() !== part.shape.join()) return Infinity;
    const values = numbers(output.data);
    return numbers(part.data).reduce((largest, value, at) => Math.max(largest, Math.abs(value - (values[at * part.step] ?? NaN))), 0);
  });
  return differences.reduce((a, b) => Math.max(a, b), 0);
}
