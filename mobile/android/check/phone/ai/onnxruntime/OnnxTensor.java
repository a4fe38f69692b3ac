package ai.onnxruntime;

import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.nio.LongBuffer;

public class OnnxTensor implements OnnxValue {
  final ByteBuffer bytes;
  final long[] shape;
  final boolean isFloat;

  OnnxTensor(ByteBuffer bytes, long[] shape, boolean isFloat) {
    this.bytes = bytes;
    this.shape = shape;
    this.isFloat = isFloat;
  }

  public static OnnxTensor createTensor(OrtEnvironment env, FloatBuffer data, long[] shape) {
    ByteBuffer bytes = ByteBuffer.allocate(4 * data.remaining());
    bytes.asFloatBuffer().put(data);
    return new OnnxTensor(bytes, shape, true);
  }

  public static OnnxTensor createTensor(OrtEnvironment env, LongBuffer data, long[] shape) {
    ByteBuffer bytes = ByteBuffer.allocate(8 * data.remaining());
    bytes.asLongBuffer().put(data);
    return new OnnxTensor(bytes, shape, false);
  }

  public TensorInfo getInfo() {
    return new TensorInfo(shape);
  }

  public FloatBuffer getFloatBuffer() {
    return isFloat ? bytes.asFloatBuffer() : null;
  }

  public LongBuffer getLongBuffer() {
    return isFloat ? null : bytes.asLongBuffer();
  }

  public void close() {}
}
