package ai.onnxruntime;

public class OrtSession implements AutoCloseable {
  public static class SessionOptions implements AutoCloseable {
    public void setIntraOpNumThreads(int threads) throws OrtException {}
    public void close() {}
  }
  public static class Result implements AutoCloseable {
    public java.util.Optional<OnnxValue> get(String key) { throw new RuntimeException("stub"); }
    public void close() {}
  }
  public Result run(java.util.Map<String, ? extends OnnxTensor> inputs) throws OrtException { throw new RuntimeException("stub"); }
  public void close() throws OrtException {}
}
