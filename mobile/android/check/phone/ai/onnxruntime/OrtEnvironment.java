package ai.onnxruntime;

public final class OrtEnvironment implements AutoCloseable {
  static String version = "of no session";

  public static OrtEnvironment getEnvironment() {
    return new OrtEnvironment();
  }

  public OrtSession createSession(String modelPath, OrtSession.SessionOptions options) throws OrtException {
    return new OrtSession(modelPath, options.threads);
  }

  public String getVersion() {
    return version;
  }

  public void close() {}
}
