package org.pytorch.executorch;

public abstract class Tensor {
  public static Tensor fromBlob(float[] data, long[] shape) { throw new RuntimeException("stub"); }
  public static Tensor fromBlob(long[] data, long[] shape) { throw new RuntimeException("stub"); }
  public long[] shape() { throw new RuntimeException("stub"); }
  public abstract DType dtype();
  public float[] getDataAsFloatArray() { throw new RuntimeException("stub"); }
  public long[] getDataAsLongArray() { throw new RuntimeException("stub"); }
}
