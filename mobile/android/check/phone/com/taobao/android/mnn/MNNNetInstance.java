package com.taobao.android.mnn;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/** MNN's class, with a session of the real MNN in a Python process behind it; errors are logged, as MNN's are. */
public class MNNNetInstance {
  public static class Config {
    public int forwardType;
    public int numThread = 4;
    public String[] saveTensors;
    public String[] outputTensors;
  }

  public class Session {
    private final Map<String, Tensor> inputs = new HashMap<>();
    private Map<String, phone.Session.Array> answers = Map.of();

    public class Tensor {
      private int[] shape = {};
      private phone.Session.Array array;

      public void reshape(int[] shape) {
        this.shape = shape;
      }

      public void setInputIntData(int[] data) {
        ByteBuffer bytes = ByteBuffer.allocate(8 * data.length);
        bytes.asLongBuffer().put(Arrays.stream(data).asLongStream().toArray());
        array = new phone.Session.Array(bytes, sizes(), false);
      }

      public void setInputFloatData(float[] data) {
        ByteBuffer bytes = ByteBuffer.allocate(4 * data.length);
        bytes.asFloatBuffer().put(data);
        array = new phone.Session.Array(bytes, sizes(), true);
      }

      public int[] getDimensions() {
        return array == null ? shape : Arrays.stream(array.shape()).mapToInt(size -> (int) size).toArray();
      }

      public float[] getFloatData() {
        float[] data = new float[array.bytes().capacity() / 4];
        array.bytes().asFloatBuffer().get(data);
        return data;
      }

      public int[] getIntData() {
        long[] data = new long[array.bytes().capacity() / 8];
        array.bytes().asLongBuffer().get(data);
        return Arrays.stream(data).mapToInt(value -> (int) value).toArray();
      }

      private long[] sizes() {
        return Arrays.stream(shape).asLongStream().toArray();
      }
    }

    public void reshape() {
      inputs.values().forEach(tensor -> tensor.array = null);
    }

    public void run() {
      Map<String, phone.Session.Array> arrays = new HashMap<>();
      inputs.forEach((name, tensor) -> arrays.put(name, tensor.array));
      try {
        answers = session.run(arrays);
      } catch (IOException error) {
        System.err.println(error);
        answers = Map.of();
      }
    }

    public Tensor getInput(String name) {
      return inputs.computeIfAbsent(name, key -> new Tensor());
    }

    public Tensor getOutput(String name) {
      Tensor output = new Tensor();
      output.array = answers.get(name);
      return output.array == null ? null : output;
    }
  }

  private final String path;
  private phone.Session session;

  private MNNNetInstance(String path) {
    this.path = path;
  }

  public static MNNNetInstance createFromFile(String path) {
    return new MNNNetInstance(path);
  }

  public Session createSession(Config config) {
    try {
      session = new phone.Session("MNN", path, config.numThread);
      return new Session();
    } catch (IOException error) {
      System.err.println(error);
      return null;
    }
  }

  public void release() {
    session.close();
  }
}
