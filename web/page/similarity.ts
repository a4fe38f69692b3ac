/** Similarity: how alike two pictures are to a model that gives embeddings: the cosine of the angle between them. */

/** The picture that others are compared with. */
export interface Kept {
  readonly vector: readonly number[];
  readonly picture: ImageBitmap;
}

/** In [-1, 1]; NaN where one of the vectors has no length or they differ in theirs. */
export function cosine(a: readonly number[], b: readonly number[]): number {
  if (a.length !== b.length) return NaN;
  const dot = (x: readonly number[], y: readonly number[]): number => x.reduce((sum, value, i) => sum + value * (y[i] ?? 0), 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
}
