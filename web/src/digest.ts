/**
 * sha256 of bytes, in hex.
 *
 * `crypto.subtle` exists only in secure contexts, so a page opened over plain http from another machine has none (a phone
 * that opens a page served in the same network). The fallback follows FIPS 180-4.
 */
const CHUNK = 1 << 20; // bytes hashed in one task of the event loop: about 10 ms

export async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  // Its type says that `crypto.subtle` always exists.
  const subtle = (globalThis.crypto as Crypto | undefined)?.subtle;
  if (subtle) return hex(new Uint8Array(await subtle.digest("SHA-256", bytes)));
  return sha256Fallback(bytes);
}

/** The fallback, exported for its test. */
export async function sha256Fallback(bytes: Uint8Array): Promise<string> {
  const state = Uint32Array.from(INITIAL_HASH);
  const whole = bytes.length - (bytes.length % 64);
  for (let from = 0; from < whole; from += CHUNK) {
    compress(state, bytes.subarray(from, Math.min(from + CHUNK, whole)));
    await new Promise((resolve) => setTimeout(resolve));
  }
  compress(state, padded(bytes, whole));
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => {
    digest.setUint32(4 * i, word);
  });
  return hex(new Uint8Array(digest.buffer));
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}

function padded(bytes: Uint8Array, whole: number): Uint8Array {
  const rest = bytes.subarray(whole);
  const last = new Uint8Array(rest.length < 56 ? 64 : 128);
  last.set(rest);
  last[rest.length] = 0x80;
  const view = new DataView(last.buffer);
  view.setUint32(last.length - 8, Math.floor(bytes.length / 2 ** 29));
  view.setUint32(last.length - 4, bytes.length << 3);
  return last;
}

const words = new Int32Array(64);

function compress(state: Uint32Array, blocks: Uint8Array): void {
  const view = new DataView(blocks.buffer, blocks.byteOffset, blocks.byteLength);
  for (let at = 0; at < blocks.length; at += 64) {
    for (let i = 0; i < 16; i++) words[i] = view.getInt32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const a = wordAt(words, i - 15);
      const b = wordAt(words, i - 2);
      const s0 = rotateRight(a, 7) ^ rotateRight(a, 18) ^ (a >>> 3);
      const s1 = rotateRight(b, 17) ^ rotateRight(b, 19) ^ (b >>> 10);
      words[i] = wordAt(words, i - 16) + s0 + wordAt(words, i - 7) + s1;
    }
    rounds(state);
  }
}

function rounds(state: Uint32Array): void {
  let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
  for (let i = 0; i < 64; i++) {
    const t1 = (h + (rotateRight(e, 6) ^ rotateRight(e, 11) ^ rotateRight(e, 25)) + ((e & f) ^ (~e & g)) + wordAt(ROUND_CONSTANTS, i) + wordAt(words, i)) | 0;
    const t2 = ((rotateRight(a, 2) ^ rotateRight(a, 13) ^ rotateRight(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + t1) | 0, c, b, a, (t1 + t2) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => {
    state[i] = wordAt(state, i) + word;
  });
}

function rotateRight(word: number, by: number): number {
  return (word >>> by) | (word << (32 - by));
}

function wordAt(array: Int32Array | Uint32Array, i: number): number {
  return array[i] ?? 0;
}

// The first 32 bits of the fractional parts of the square roots of the first 8 primes, and of the cube roots of the first 64.
const PRIMES = primes(64);
const INITIAL_HASH = PRIMES.slice(0, 8).map((p) => fraction(Math.sqrt(p)));
const ROUND_CONSTANTS = Uint32Array.from(PRIMES, (p) => fraction(Math.cbrt(p)));

function primes(count: number): number[] {
  const found: number[] = [];
  for (let n = 2; found.length < count; n++) if (found.every((p) => n % p !== 0)) found.push(n);
  return found;
}

function fraction(root: number): number {
  return Math.floor((root - Math.floor(root)) * 2 ** 32);
}
