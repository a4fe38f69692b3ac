package ai.onnxruntime;

import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/** A session of the real ONNX Runtime in a Python process (ort.py). */
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

  private final Process process;
  private final DataOutputStream out;
  private final DataInputStream in;

  OrtSession(String path, int threads) throws OrtException {
    String[] command = {System.getProperty("phone.python"), System.getProperty("phone.ort"), path, "" + threads};
    try {
      process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
      out = new DataOutputStream(new BufferedOutputStream(process.getOutputStream()));
      in = new DataInputStream(process.getInputStream());
      answered();
      OrtEnvironment.version = in.readUTF();
    } catch (IOException error) {
      throw new OrtException("no session: " + error);
    }
  }

  public Result run(Map<String, ? extends OnnxTensor> inputs) throws OrtException {
    try {
      out.writeInt(inputs.size());
      for (Map.Entry<String, ? extends OnnxTensor> one : inputs.entrySet()) {
        OnnxTensor tensor = one.getValue();
        out.writeUTF(one.getKey());
        out.writeBoolean(tensor.isFloat);
        out.writeInt(tensor.shape.length);
        for (long size : tensor.shape) {
          out.writeLong(size);
        }
        out.write(tensor.bytes.array());
      }
      out.flush();
      answered();
      Result result = new Result();
      for (int left = in.readInt(); left > 0; left--) {
        String name = in.readUTF();
        boolean isFloat = in.readBoolean();
        long[] shape = new long[in.readInt()];
        int count = isFloat ? 4 : 8;
        for (int i = 0; i < shape.length; i++) {
          shape[i] = in.readLong();
          count *= (int) shape[i];
        }
        result.values.put(name, new OnnxTensor(ByteBuffer.wrap(in.readNBytes(count)), shape, isFloat));
      }
      return result;
    } catch (IOException error) {
      throw new OrtException("the session ended: " + error);
    }
  }

  private void answered() throws IOException, OrtException {
    if (!in.readBoolean()) {
      throw new OrtException(in.readUTF());
    }
  }

  public void close() {
    process.destroyForcibly();
  }
}
