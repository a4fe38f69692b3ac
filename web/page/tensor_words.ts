/** TensorWords: numbers and tensors in words. */
import type { NamedOutput } from "../src/index";

const VALUES = 8; // of a small output, shown one by one
const DIGITS = 4; // significant

/** An output in numbers: all values of a small one; the shape, the smallest, mean and largest value of another one. */
export function describe({ shape, data }: Pick<NamedOutput, "shape" | "data">): string {
  const values = numbers(data);
  if (values.length <= VALUES) return values.map(format).join(", ");
  const finite = values.filter(Number.isFinite);
  const wrong = values.length - finite.length;
  const told = wrong > 0 ? `, ${String(wrong)} of them no finite number` : "";
  if (finite.length === 0) return `${shape.join(" x ")} values${told}`;
  const mean = finite.reduce((a, b) => a + b, 0) / finite.length;
  const [low, high] = finite.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
  return `${shape.join(" x ")} values from ${format(low)} to ${format(high)}, mean ${format(mean)}${told}`;
}

export function numbers(data: ArrayBufferView): number[] {
  return Array.from(data as unknown as ArrayLike<number | bigint>, Number);
}

export function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

export function format(value: number): string {
  return Number.isInteger(value) ? String(value) : value.toPrecision(DIGITS);
}
