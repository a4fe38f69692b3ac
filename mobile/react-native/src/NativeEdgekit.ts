/**
 * The native module, from which React Native's codegen writes the interfaces of `EdgekitModule.kt` and `RCTEdgekit.mm`.
 *
 * A promise that is rejected has one of the codes of `@edgekit/web/types`.
 */
import type { TurboModule } from "react-native";
import { TurboModuleRegistry } from "react-native";

export type NativeVerdict = { readonly place: string; readonly status: string };

export type NativeCase = {
  readonly name: string;
  readonly pass: boolean;
  readonly output: string;
  readonly metric: string;
  readonly error: number;
  readonly limit: number;
  readonly reason: string;
};

export type NativeInfo = {
  /** The number by which later calls name the runner. */
  readonly runner: number;
  readonly name: string;
  readonly target: string;
  readonly targets: ReadonlyArray<string>;
  readonly precision: string;
  readonly device: string;
  readonly reference: string;
  readonly verdicts: ReadonlyArray<NativeVerdict>;
  readonly words: ReadonlyArray<string>;
  readonly threshold: number | null;
  /** Empty where no self-test was requested, or the bundle has no golden vectors. */
  readonly cases: ReadonlyArray<NativeCase>;
};

export type NativeResult = {
  readonly relevance: ReadonlyArray<number>;
  readonly budgets: ReadonlyArray<number>;
  readonly indices: ReadonlyArray<number>;
  readonly rows: number;
  readonly columns: number;
  /** Height and width of the model's input. */
  readonly size: ReadonlyArray<number>;
  /** Top, left, height and width of the picture's part that fills `place` of the model's input. */
  readonly part: ReadonlyArray<number>;
  readonly place: ReadonlyArray<number>;
  readonly known: ReadonlyArray<string>;
  readonly present: boolean | null;
  /** Milliseconds of preprocessing and the run. */
  readonly ms: number;
};

export interface Spec extends TurboModule {
  /** Open a bundle of the app by its name, or one in a folder by its `file://` address. Without a target, its best model. */
  load(source: string, target: string | null, selfTest: boolean): Promise<NativeInfo>;
  /**
   * Run a model on one picture. `pixels` is empty where `image` is an address, else height and width of the RGB or RGBA
   * bytes that `image` has in Base64. `query` is a text, or null where `vector` is the query; `size` is empty or height
   * and width of the model's input.
   */
  run(
    runner: number,
    image: string,
    pixels: ReadonlyArray<number>,
    query: string | null,
    vector: ReadonlyArray<number>,
    k: number,
    size: ReadonlyArray<number>,
  ): Promise<NativeResult>;
  selfTest(runner: number): Promise<ReadonlyArray<NativeCase>>;
  /** Close a runner after the runs that wait. */
  dispose(runner: number): Promise<void>;
}

export default TurboModuleRegistry.getEnforcing<Spec>("Edgekit");
