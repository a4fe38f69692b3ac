/** The types of edgekit.js, which this bundle carries. */
export * from "./types/index.js";
