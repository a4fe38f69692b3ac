/**
 * The messages between the page and one worker. Every request is answered once, by `id`, a download with its progress
 * before; "lost" comes unasked.
 */
import type { Wanted } from "./download";
import type { Told } from "./errors";
import type { Expected, SelfTestReport } from "./golden";
import type { Tensor } from "./manifest";
import type { Sendable } from "./picture";

/** Which build of the runtime: "wasm" is the plain one, "jspi" has WebGPU too, "asyncify" for browsers without JSPI. */
export type Build = "wasm" | "jspi" | "asyncify";
export type Device = "webgpu" | "wasm";

export interface StartRequest {
  readonly op: "start";
  readonly build: Build;
  readonly device: Device;
  /** URL of the folder with the runtime's files. */
  readonly runtime: string;
  readonly threads: number;
}

/** Fetch the model, beside whatever else goes on: its bytes never pass through the page's thread. */
export interface FetchRequest {
  readonly op: "fetch";
  readonly wanted: Wanted;
}

/** Fetch a model and what goes with it for a later visit; opens nothing. */
export interface KeepRequest {
  readonly op: "keep";
  readonly wanted: Wanted;
  /** Addresses of the other files. */
  readonly others: readonly string[];
}

/** Open the model that was fetched. */
export interface OpenRequest {
  readonly op: "open";
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
}

export interface RunRequest {
  readonly op: "run";
  readonly image: Sendable;
  readonly query: Float32Array<ArrayBuffer> | null;
  readonly height: number;
  readonly width: number;
}

/** Raw inputs, for verification: no preprocessing. */
export interface FeedRequest {
  readonly op: "feed";
  readonly inputs: Readonly<Record<string, RawTensor>>;
}

export interface SelfTestRequest {
  readonly op: "selfTest";
  readonly json: Uint8Array<ArrayBuffer>;
  readonly binary: Uint8Array<ArrayBuffer>;
  readonly limit: number;
  readonly url: string;
}

export type Request = StartRequest | FetchRequest | KeepRequest | OpenRequest | RunRequest | FeedRequest | SelfTestRequest;

/** A tensor in plain form; int64 is carried as BigInt64Array. */
export interface RawTensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data: ArrayBufferView<ArrayBuffer>;
}

export interface Adapter {
  readonly vendor: string;
  readonly architecture: string;
  readonly description: string;
}

export interface Started {
  readonly threads: number;
  readonly adapter: Adapter | null;
  readonly version: string;
}

export interface Answer extends Expected {
  readonly rows: number;
  readonly columns: number;
  readonly tokens: { readonly data: Float32Array; readonly shape: readonly number[] } | null;
  /** Further score maps of the graph, by name: the scorers' parts where the model gives them. */
  readonly parts: Readonly<Record<string, Float32Array>>;
  /** Milliseconds. */
  readonly preprocess: number;
  readonly inference: number;
}

export interface Answers {
  start: Started;
  fetch: null;
  keep: null;
  open: null;
  run: Answer;
  feed: Readonly<Record<string, RawTensor>>;
  selfTest: Omit<SelfTestReport, "device" | "dtype">;
}

export type Message = { readonly id: number } & Request;

export type Reply =
  | { readonly id: number; readonly loaded: number; readonly fromCache: boolean }
  | { readonly id: number; readonly answer: Answers[keyof Answers] }
  | { readonly id: number; readonly error: Told }
  | { readonly lost: string };
