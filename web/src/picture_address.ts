/** PictureAddress: a picture that is given by its URL. */
import { fetchResponse } from "./download.js";
import { environment } from "./environment.js";
import { UsageError } from "./errors.js";
import type { ImageSource } from "./preprocessing.js";

export function isAddress(image: ImageSource | string | URL): image is string | URL {
  return typeof image === "string" || image instanceof URL;
}

/** @throws UsageError for what is no URL, AssetError if it cannot be fetched: another origin must allow it (CORS). */
export async function fetchPicture(address: string | URL, signal: AbortSignal | undefined): Promise<Blob> {
  let url: URL;
  try {
    url = new URL(address, environment().base());
  } catch {
    throw new UsageError(`"${String(address)}" is not a valid URL of a picture`);
  }
  return (await fetchResponse(url.href, signal, "default")).blob();
}
