/**
 * Presence: whether anything in a picture answers the query. Where the highest relevance is below the model's threshold,
 * nothing does.
 *
 * `presence.json` is {"output": "relevance", "statistic": "max", "threshold": 0.47}, as training/presence.py writes it.
 */
import type { Bundle } from "./bundle.js";
import { ManifestError } from "./errors.js";

/** The file of a bundle whose model has a threshold. */
const PRESENCE_FILE = "presence.json";

/**
 * The threshold of a bundle's model, or null where it has none.
 *
 * @throws AssetError or HashError if the file cannot be fetched, ManifestError if it has no threshold between 0 and 1.
 */
export async function fetchThreshold(bundle: Bundle, signal?: AbortSignal): Promise<number | null> {
  if (!bundle.file(PRESENCE_FILE)) return null;
  return parseThreshold(await bundle.fetch(PRESENCE_FILE, { signal }), bundle.urlOf(PRESENCE_FILE));
}

/** @throws ManifestError if there is no threshold between 0 and 1 for the highest relevance. */
export function parseThreshold(json: Uint8Array, url: string): number {
  const { output, statistic, threshold } = JSON.parse(new TextDecoder().decode(json)) as Record<string, unknown>;
  const valid = output === "relevance" && statistic === "max" && typeof threshold === "number" && threshold > 0 && threshold < 1;
  if (!valid) throw new ManifestError(`${url} has no threshold between 0 and 1 for the highest relevance`);
  return threshold;
}

/** Whether the highest relevance reaches the threshold; null without a threshold. */
export function isPresent(relevance: Float32Array, threshold: number | null): boolean | null {
  return threshold === null ? null : relevance.some((score) => score >= threshold);
}
