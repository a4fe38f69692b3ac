package ai.onnxruntime;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import phone.Session;

/** A session of the real ONNX Runtime in a Python process. */
public class OrtSession implements AutoCloseable {
  public static class SessionOptions implements AutoCloseable {
    int threads = 1;

    public void setIntraOpNumThreads(int threads) {
      this.threads = threads;
    }

    public void close() {}
  }

  public static class Result implements AutoCloseable {
    private final Map<String, OnnxValue> values = new HashMap<>();

    public Optional<OnnxValue> get(String key) {
      return Optional.ofNullable(values.get(key));
    }

    public void close() {}
  }

  private final Session session;

  OrtSession(String path, int threads) throws OrtException {
    try {
      session = new Session("onnxruntime", path, threads);
    } catch (IOException error) {
      throw new OrtException(error.getMessage());
    }
    OrtEnvironment.version = session.version;
  }

  public Result run(Map<String, ? extends OnnxTensor> inputs) throws OrtException {
    Map<String, Session.Array> arrays = new HashMap<>();
    inputs.forEach((name, tensor) -> arrays.put(name, tensor.array));
    Result result = new Result();
    try {
      session.run(arrays).forEach((name, array) -> result.values.put(name, new OnnxTensor(array)));
    } catch (IOException error) {
      throw new OrtException(error.getMessage());
    }
    return result;
  }

  public void close() {
    session.close();
  }
}
