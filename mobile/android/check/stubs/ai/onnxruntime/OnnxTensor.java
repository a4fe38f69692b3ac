package ai.onnxruntime;

public class OnnxTensor implements OnnxValue {
  public static OnnxTensor createTensor(OrtEnvironment env, java.nio.FloatBuffer data, long[] shape) throws OrtException { throw new RuntimeException("stub"); }
  public static OnnxTensor createTensor(OrtEnvironment env, java.nio.LongBuffer data, long[] shape) throws OrtException { throw new RuntimeException("stub"); }
  public TensorInfo getInfo() { throw new RuntimeException("stub"); }
  /** Null unless the tensor holds floats. */
  public java.nio.FloatBuffer getFloatBuffer() { throw new RuntimeException("stub"); }
  /** Null unless the tensor holds int64. */
  public java.nio.LongBuffer getLongBuffer() { throw new RuntimeException("stub"); }
  public void close() {}
}
