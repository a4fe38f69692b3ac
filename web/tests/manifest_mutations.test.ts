/**
 * Random mutations of a manifest: whatever is in it, it is read or refused in a sentence, and no path leaves the bundle.
 *
 * EDGEKIT_FUZZ_SECONDS=60 goes on for a minute; EDGEKIT_FUZZ_SEED repeats a run.
 */
import { expect, test } from "vitest";
import { ManifestError } from "../src/errors";
import { parseManifest, sizeOf } from "../src/manifest";
import { manifest } from "./bundle";

const SECONDS = Number(process.env.EDGEKIT_FUZZ_SECONDS ?? "0.5");
const SEED = Number(process.env.EDGEKIT_FUZZ_SEED ?? "15");
const BASE = "https://here.example/bundle/";
const PATHS = [" //evil.example/x", "%2e%2e/x", "../x", "/x", "a\\x", "https:x", "x?y", "x#y", "a//b", "\u2028", "x\n", "a/..", "．．/x"];
const VALUES: readonly unknown[] = [null, undefined, true, -1, 0, 1.5, 2 ** 53, NaN, Infinity, "", "__proto__", "constructor", [], {}, [[]], ...PATHS];

test(
  "a mutated manifest is read or refused, and what is read names files inside the bundle",
  () => {
    const draw = generator(SEED);
    const end = performance.now() + SECONDS * 1000;
    let read = 0;
    let refused = 0;
    while (performance.now() < end || read + refused < 500) {
      const changed = draw(4) === 0 ? mutatedText(draw) : mutated(manifest(), draw);
      try {
        const found = parseManifest(changed, "u");
        read += 1;
        const names = new Set(found.files.map((file) => file.path));
        for (const path of names) expect(new URL(path, BASE).href).toBe(`${BASE}${path}`);
        for (const variant of found.bundle.variants) expect(names).toContain(variant.path);
        for (const tensor of found.inputs) {
          for (const dimension of tensor.shape) expect(["number", "undefined"]).toContain(typeof sizeOf(found, dimension));
        }
      } catch (error) {
        if (!(error instanceof ManifestError) || error.message.includes("\n")) {
          throw new Error(`seed ${String(SEED)}: ${JSON.stringify(changed)}`, { cause: error });
        }
        refused += 1;
      }
    }
    console.log(`${String(read)} read, ${String(refused)} refused`);
    expect(Math.min(read, refused)).toBeGreaterThan(10);
  },
  SECONDS * 1000 + 60_000,
);

type Draw = (below: number) => number;

/** Numerical Recipes' linear congruential generator: the same numbers everywhere. */
function generator(seed: number): Draw {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

function picked<T>(values: readonly T[], draw: Draw): T {
  return values[draw(values.length)] as T;
}

/** One to three values anywhere in it are replaced, removed, repeated, or get a field of another name. */
function mutated(value: Record<string, unknown>, draw: Draw): unknown {
  const copy = structuredClone(value);
  for (let times = 1 + draw(3); times > 0; times -= 1) {
    let home: Record<string, unknown> = copy;
    let keys = Object.keys(home);
    let key = picked(keys, draw);
    while (draw(4) > 0 && typeof home[key] === "object" && home[key] !== null) {
      const inner = home[key] as Record<string, unknown>;
      keys = Object.keys(inner);
      if (keys.length === 0) break;
      home = inner;
      key = picked(keys, draw);
    }
    if (draw(5) === 0) {
      if (Array.isArray(home)) home.splice(Number(key), 1);
      else Reflect.deleteProperty(home, key);
    }
    else if (draw(6) === 0 && !Array.isArray(home)) home[`${key}${String(draw(9))}`] = structuredClone(home[key]);
    else home[key] = picked(VALUES, draw);
  }
  return copy;
}

/** A few characters of its text are others; what is no JSON any more is refused before, and left out. */
function mutatedText(draw: Draw): unknown {
  let text = JSON.stringify(manifest());
  for (let tries = 0; ; tries += 1) {
    const at = draw(text.length);
    const changed = text.slice(0, at) + String.fromCharCode(draw(126) + 1) + text.slice(at + draw(3));
    try {
      const value = JSON.parse(changed) as unknown;
      if (tries > 3) return value;
      text = changed;
    } catch {
      if (tries > 50) return JSON.parse(text) as unknown;
    }
  }
}
