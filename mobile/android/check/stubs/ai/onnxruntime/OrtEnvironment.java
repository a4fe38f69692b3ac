package ai.onnxruntime;

public final class OrtEnvironment implements AutoCloseable {
  public static OrtEnvironment getEnvironment() { throw new RuntimeException("stub"); }
  public OrtSession createSession(String modelPath, OrtSession.SessionOptions options) throws OrtException { throw new RuntimeException("stub"); }
  public String getVersion() { throw new RuntimeException("stub"); }
  public void close() {}
}
