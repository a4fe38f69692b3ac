/** Environment: what differs between a browser and Node or Deno. `node.ts` replaces it; all else is the same code. */
import { WorkerClient } from "./worker_client.js";
import type { Client } from "./client.js";

export interface Environment {
  /** What runs one backend. */
  readonly openClient: () => Client;
  /** Fetch a URL; in Node also one of a file. */
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>;
  /** Whether pictures can be decoded, resized and drawn. Deno has ImageData, and no canvas. */
  readonly draws: boolean;
  /** What relative URLs are relative to. */
  readonly base: () => string;
}

let current: Environment = {
  openClient: () => new WorkerClient(),
  fetch: (url, init) => fetch(url, init),
  draws: true,
  base: () => globalThis.location.href,
};

export function environment(): Environment {
  return current;
}

export function setEnvironment(other: Environment): void {
  current = other;
}
