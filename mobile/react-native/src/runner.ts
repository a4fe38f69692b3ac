/**
 * Runner: a loaded model of a bundle that `edgekit assets` put into the app. `load` creates one, `dispose` frees its memory.
 *
 *     const runner = await load("arr-coc-tiny", { target: "executorch-int8" });
 *     const { relevance, rows, columns, present } = await runner.run({ image: "file:///photo.jpg", query: "red circle" });
 */
import type { CaseResult, PatchScores, Pixels, PlaceVerdict, QueryAnswer, QueryInput, SelfTestResult, Size } from "@edgekit/web/types";
import { EdgekitError, toEdgekitError } from "./errors.js";
import type { Box, Placement } from "./grid.js";
import native, { type NativeInfo, type NativeResult } from "./NativeEdgekit.js";

export interface LoadOptions {
  /** The model of the bundle, such as "onnx" or "coreml-int8"; default: the best one of the bundle. */
  readonly target?: string;
  /** Check the device against the golden vectors before use (the default). */
  readonly selfTest?: boolean;
}

export interface Info {
  readonly name: string;
  readonly target: string;
  /** The models of the bundle, the best one first. */
  readonly targets: readonly string[];
  readonly precision: string;
  /** The runtime and what it runs on. */
  readonly device: string;
  /** The device that recorded the reference. */
  readonly reference: string;
  /** Whether a place verified this model when it was exported. `selfTest` tells of this device. */
  readonly verified: boolean;
  readonly verdicts: readonly PlaceVerdict[];
  /** null where no test was requested. */
  readonly selfTest: SelfTestResult | null;
}

export interface RunInput {
  /** The address of a picture (`file://`, on Android `content://` too), or pixels. */
  readonly image: string | Pixels;
  readonly query?: QueryInput;
  /** The number of `indices` of a model that does not rank them itself; default 0. */
  readonly k?: number;
  /** Size of the model's input; default: of those that the model takes, the one that keeps the picture's shape best. */
  readonly size?: Size;
}

export interface Result extends PatchScores, QueryAnswer, Placement {
  /** Milliseconds of preprocessing and the run. */
  readonly ms: number;
}

/**
 * Open a bundle, verify the hash of each file, and test the device.
 *
 * @param source - The name of a bundle in the app's assets, or the `file://` address of a bundle's folder.
 * @throws EdgekitError: ASSET_MISSING, MANIFEST, HASH_MISMATCH, BACKEND, or SELF_TEST where an output is not within its
 *   limit of the recorded reference.
 */
export async function load(source: string, { target, selfTest = true }: LoadOptions = {}): Promise<Runner> {
  const loaded = await coded(native.load(source, target ?? null, selfTest));
  const info: Info = {
    name: loaded.name,
    target: loaded.target,
    targets: loaded.targets,
    precision: loaded.precision,
    device: loaded.device,
    reference: loaded.reference,
    verified: loaded.verdicts.some(({ status }) => status === "verified"),
    verdicts: loaded.verdicts,
    selfTest: selfTest ? summary(loaded.cases, loaded.device) : null,
  };
  return new Runner(loaded, info);
}

export class Runner {
  readonly info: Info;
  /** The words that the model knows; empty where it takes vectors only. */
  readonly words: readonly string[];
  /** The highest relevance from which something in the picture answers the query; null where the model has none. */
  readonly threshold: number | null;
  private readonly id: number;
  private isDisposed = false;

  /** @internal Use `load`. */
  constructor({ runner, words, threshold }: NativeInfo, info: Info) {
    this.id = runner;
    this.info = info;
    this.words = words;
    this.threshold = threshold;
  }

  /**
   * Run the model on one picture, and one query where it takes one.
   *
   * @throws EdgekitError: IMAGE, QUERY, USAGE, or BACKEND where the model refuses an input or the runtime fails.
   */
  run(input: RunInput): Promise<Result>;
  /** Run it on several, one after the other; the results are in their order. */
  run(inputs: readonly RunInput[]): Promise<Result[]>;
  async run(input: RunInput | readonly RunInput[]): Promise<Result | Result[]> {
    if (!isList(input)) return this.runOne(input);
    const results: Result[] = [];
    for (const each of input) results.push(await this.runOne(each));
    return results;
  }

  private async runOne({ image, query, k = 0, size }: RunInput): Promise<Result> {
    this.requireOpen();
    const isVector = query instanceof Float32Array;
    const result = await coded(
      native.run(
        this.id,
        typeof image === "string" ? image : toBase64(checkedBytes(image)),
        typeof image === "string" ? [] : [image.height, image.width],
        isVector ? null : typeof query === "string" ? query : (query?.join(" ") ?? null),
        isVector ? Array.from(query) : [],
        k,
        size ? [size.height, size.width] : [],
      ),
    );
    return toResult(result);
  }

  /** Run the golden vectors again. Reports; does not throw when a case fails. */
  async selfTest(): Promise<SelfTestResult> {
    this.requireOpen();
    return summary(await coded(native.selfTest(this.id)), this.info.device);
  }

  /** Free the model's memory, after the runs that wait. */
  async dispose(): Promise<void> {
    if (this.isDisposed) return;
    this.isDisposed = true;
    await coded(native.dispose(this.id));
  }

  private requireOpen(): void {
    if (this.isDisposed) throw new EdgekitError("USAGE", "the runner was disposed: load the bundle again");
  }
}

function isList(input: RunInput | readonly RunInput[]): input is readonly RunInput[] {
  return Array.isArray(input);
}

async function coded<T>(call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (error) {
    throw toEdgekitError(error);
  }
}

function summary(cases: readonly CaseResult[], device: string): SelfTestResult {
  return { pass: cases.every(({ pass }) => pass), cases, device };
}

function toResult({ relevance, budgets, indices, rows, columns, size, part, place, known, present, ms }: NativeResult): Result {
  const [height = 0, width = 0] = size;
  return {
    relevance: Float32Array.from(relevance),
    budgets: Int32Array.from(budgets),
    indices: Int32Array.from(indices),
    rows,
    columns,
    size: { height, width },
    part: toBox(part),
    place: toBox(place),
    known,
    present,
    ms,
  };
}

function toBox([top = 0, left = 0, height = 0, width = 0]: readonly number[]): Box {
  return { top, left, height, width };
}

function checkedBytes({ data, height, width }: Pixels): Pixels["data"] {
  if (data.length === 3 * height * width || data.length === 4 * height * width) return data;
  throw new EdgekitError("IMAGE", `${data.length} bytes are not the RGB or RGBA pixels of ${height} x ${width}`);
}

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/** Base64, which React Native's bridge takes in every version; not all of its engines have `btoa`. */
function toBase64(bytes: Pixels["data"]): string {
  const groups: string[] = [];
  for (let at = 0; at < bytes.length; at += 3) {
    const [first = 0, second, third] = bytes.subarray(at, at + 3);
    const bits = (first << 16) | ((second ?? 0) << 8) | (third ?? 0);
    const digit = (shift: number): string => DIGITS.charAt((bits >> shift) & 63);
    groups.push(digit(18), digit(12), second === undefined ? "=" : digit(6), third === undefined ? "=" : digit(0));
  }
  return groups.join("");
}
