package ai.onnxruntime;

public class TensorInfo implements ValueInfo {
  public final OnnxJavaType type = OnnxJavaType.FLOAT;
  private final long[] shape;

  TensorInfo(long[] shape) {
    this.shape = shape;
  }

  public long[] getShape() {
    return shape;
  }
}
