/** A tensor without preprocessing; int64 values are a BigInt64Array. */
export interface RawTensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data: ArrayBufferView<ArrayBuffer>;
}
