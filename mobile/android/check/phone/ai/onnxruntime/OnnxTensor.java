package ai.onnxruntime;

import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.nio.LongBuffer;
import phone.Session;

public class OnnxTensor implements OnnxValue {
  final Session.Array array;

  OnnxTensor(Session.Array array) {
    this.array = array;
  }

  public static OnnxTensor createTensor(OrtEnvironment env, FloatBuffer data, long[] shape) {
    ByteBuffer bytes = ByteBuffer.allocate(4 * data.remaining());
    bytes.asFloatBuffer().put(data);
    return new OnnxTensor(new Session.Array(bytes, shape, true));
  }

  public static OnnxTensor createTensor(OrtEnvironment env, LongBuffer data, long[] shape) {
    ByteBuffer bytes = ByteBuffer.allocate(8 * data.remaining());
    bytes.asLongBuffer().put(data);
    return new OnnxTensor(new Session.Array(bytes, shape, false));
  }

  public TensorInfo getInfo() {
    return new TensorInfo(array.shape());
  }

  public FloatBuffer getFloatBuffer() {
    return array.isFloat() ? array.bytes().asFloatBuffer() : null;
  }

  public LongBuffer getLongBuffer() {
    return array.isFloat() ? null : array.bytes().asLongBuffer();
  }

  public void close() {}
}
