package phone;

import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;

/** A model in a runtime of Python's (runtime.py): inputs and answers by name go through its pipes. */
public final class Session {
  /** An array: its numbers in big-endian order, float32 or int64, and its shape. */
  public record Array(ByteBuffer bytes, long[] shape, boolean isFloat) {}

  public final String version;
  private final Process process;
  private final DataOutputStream out;
  private final DataInputStream in;

  public Session(String runtime, String path, int threads) throws IOException {
    String[] command = {System.getProperty("phone.python"), System.getProperty("phone.runtime"), runtime, path, "" + threads};
    process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    out = new DataOutputStream(new BufferedOutputStream(process.getOutputStream()));
    in = new DataInputStream(process.getInputStream());
    requireAnswer();
    version = in.readUTF();
  }

  public Map<String, Array> run(Map<String, Array> inputs) throws IOException {
    out.writeInt(inputs.size());
    for (Map.Entry<String, Array> one : inputs.entrySet()) {
      Array array = one.getValue();
      out.writeUTF(one.getKey());
      out.writeBoolean(array.isFloat);
      out.writeInt(array.shape.length);
      for (long size : array.shape) {
        out.writeLong(size);
      }
      out.write(array.bytes.array());
    }
    out.flush();
    requireAnswer();
    Map<String, Array> answers = new LinkedHashMap<>();
    for (int left = in.readInt(); left > 0; left--) {
      String name = in.readUTF();
      boolean isFloat = in.readBoolean();
      long[] shape = new long[in.readInt()];
      int count = isFloat ? 4 : 8;
      for (int i = 0; i < shape.length; i++) {
        shape[i] = in.readLong();
        count *= (int) shape[i];
      }
      answers.put(name, new Array(ByteBuffer.wrap(in.readNBytes(count)), shape, isFloat));
    }
    return answers;
  }

  public void close() {
    process.destroyForcibly();
  }

  private void requireAnswer() throws IOException {
    if (!in.readBoolean()) {
      throw new IOException(in.readUTF());
    }
  }
}
