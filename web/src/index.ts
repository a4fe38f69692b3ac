/** @edgekit/web: runs a bundle of `edgekit export -t web` in the browser, in a worker, after a self-test on the user's device. */
export { type BenchOptions, type BenchReport, bench } from "./bench";
export { Bundle } from "./bundle";
export { clearCache, isCached, preload } from "./cache";
export { type Capabilities, capabilities } from "./device";
export * from "./errors";
export type { CaseReport, SelfTestReport } from "./golden";
export type { Fallback } from "./fallback_chain";
export type { BundleFile, Dtype, Manifest, Variant } from "./manifest";
export type { LoadOptions } from "./options";
export { type ImageSource, type ImageTensor, decode } from "./preprocessing";
export type { DeviceOption, DtypeOption } from "./candidates";
export type { ProgressCallback, ProgressEvent } from "./progress";
export { PRESENCE_FILE } from "./presence";
export { type EncodedQuery, QueryEncoder } from "./query_encoder";
export { type Info, type Result, type RunInput, type RunOptions, Runner, load } from "./runner";
export { runtimeFiles } from "./session";
export type { NamedOutput, RawTensor } from "./protocol";
