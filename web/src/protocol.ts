/**
 * Protocol: the messages between the page and one worker.
 *
 * Each request gets one response with the same `id`; a download reports its progress first. "deviceLost" is the only
 * message that belongs to no request.
 */
import type { FileRequest } from "./download.js";
import type { SerializedError } from "./errors.js";
import type { SelfTestReport } from "./golden.js";
import type { Tensor } from "./manifest.js";
import type { TransferableImage } from "./preprocessing.js";
import type { RawTensor } from "./tensor.js";
import type { PatchScores } from "./types.js";

/** Which build of the runtime: "wasm" is the plain one, "jspi" has WebGPU too, "asyncify" for browsers without JSPI. */
export type Build = "wasm" | "jspi" | "asyncify";
/** "cpu" is that of onnxruntime-node; on "webnn", what the browser's WebNN lacks runs on WASM. */
export type Device = "webgpu" | "webnn" | "wasm" | "cpu";

export interface StartRequest {
  readonly op: "start";
  readonly build: Build;
  readonly device: Device;
  /** URL of the folder with the runtime's files. */
  readonly runtime: string;
  readonly threads: number;
}

/** Fetch the model, in parallel with other requests: its bytes never pass through the page's thread. */
export interface FetchRequest {
  readonly op: "fetch";
  readonly model: FileRequest;
}

/** Fetch and store a model and its other files for a later visit, without opening a session. */
export interface PreloadRequest {
  readonly op: "preload";
  readonly model: FileRequest;
  /** URLs of the other files, which go into the HTTP cache. */
  readonly otherUrls: readonly string[];
}

/** Open a session with the model that was fetched. */
export interface OpenRequest {
  readonly op: "open";
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
}

/** One batch: pictures of one size, each with its query where the model takes one. */
export interface RunRequest {
  readonly op: "run";
  readonly questions: readonly Question[];
  readonly height: number;
  readonly width: number;
}

export interface Question {
  readonly image: TransferableImage;
  readonly query: Float32Array<ArrayBuffer> | null;
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
  /** Names of the tables of limits; of each limit the widest holds. */
  readonly allowed: readonly string[];
  readonly url: string;
}

export type Request = StartRequest | FetchRequest | PreloadRequest | OpenRequest | RunRequest | FeedRequest | SelfTestRequest;

export interface Adapter {
  readonly vendor: string;
  readonly architecture: string;
  readonly description: string;
}

export interface Started {
  /** Where it is another one than that of the request. */
  readonly device?: Device;
  readonly threads: number;
  readonly adapter: Adapter | null;
  readonly version: string;
}

/** An output of the model, as the runtime gave it, with what it is for (`role` in the manifest). */
export interface NamedOutput extends RawTensor {
  readonly role: string;
}

export interface ModelOutput extends PatchScores {
  /** Every output by name. */
  readonly outputs: Readonly<Record<string, NamedOutput>>;
  readonly tokens: { readonly data: Float32Array; readonly shape: readonly number[] } | null;
  /** Further score maps of the model, by output name. */
  readonly parts: Readonly<Record<string, Float32Array>>;
  /** Milliseconds; of a batch an equal share of its time. */
  readonly preprocess: number;
  readonly inference: number;
}

export interface Responses {
  start: Started;
  fetch: null;
  preload: null;
  open: null;
  run: readonly ModelOutput[];
  feed: Readonly<Record<string, RawTensor>>;
  selfTest: Omit<SelfTestReport, "device" | "dtype">;
}

export type WorkerRequest = { readonly id: number } & Request;

export type WorkerReply =
  | { readonly id: number; readonly loaded: number; readonly fromCache: boolean; readonly sent?: number | undefined }
  | { readonly id: number; readonly response: Responses[keyof Responses] }
  | { readonly id: number; readonly error: SerializedError }
  | { readonly deviceLost: string };
