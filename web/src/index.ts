/// <reference lib="dom" preserve="true" />
/// <reference lib="esnext.disposable" preserve="true" />
/** @edgekit/web: runs a bundle of `edgekit export -t web` in the browser, in a worker, after a self-test on the user's device. */
export { type BenchOptions, type BenchReport, bench } from "./bench.js";
export { type Bucket, Buckets, type Part } from "./buckets.js";
export { Bundle } from "./bundle.js";
export { clearCache, isCached, preload } from "./cache.js";
export { type Capabilities, capabilities } from "./device.js";
export * from "./errors.js";
export type { CaseReport, SelfTestReport } from "./golden.js";
export type { Fallback } from "./fallback_chain.js";
export type { BundleFile, Dtype, Manifest, Variant } from "./manifest.js";
export { verifiedDtypes } from "./manifest.js";
export type { Size } from "./input_size.js";
export type { LoadOptions } from "./options.js";
export { type ImageSource, type ImageTensor, decode } from "./preprocessing.js";
export type { DeviceOption, DtypeOption } from "./candidates.js";
export type { ProgressCallback, ProgressEvent } from "./progress.js";
export { type EncodedQuery, QueryEncoder } from "./query_encoder.js";
export { type Info, type Result, type RunOptions, Runner, load } from "./runner.js";
export type { RunInput } from "./run_input.js";
export type { NamedOutput } from "./protocol.js";
export type { RawTensor } from "./tensor.js";
