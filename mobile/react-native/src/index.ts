/** @edgekit/react-native: runs a bundle of `edgekit assets` in a React Native app, by edgekit's Kotlin and Swift libraries. */
export type { CaseResult, Code, PatchScores, Pixels, PlaceVerdict, QueryAnswer, QueryInput, SelfTestResult, Size } from "@edgekit/web/types";
export { EdgekitError } from "./errors.js";
export { type Box, type Placement, patchAt } from "./grid.js";
export { type Info, type LoadOptions, type Result, type RunInput, Runner, load } from "./runner.js";
