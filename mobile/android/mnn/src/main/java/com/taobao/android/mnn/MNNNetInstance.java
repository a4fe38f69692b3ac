package com.taobao.android.mnn;

/** The signatures of MNN's class of this name that `MnnRunner` uses; an app brings MNN's own. */
public class MNNNetInstance {
  public static class Config {
    public int forwardType;
    public int numThread = 4;
    public String[] saveTensors;
    public String[] outputTensors;
  }

  public class Session {
    public class Tensor {
      public void reshape(int[] shape) { throw new RuntimeException("stub"); }
      public void setInputIntData(int[] data) { throw new RuntimeException("stub"); }
      public void setInputFloatData(float[] data) { throw new RuntimeException("stub"); }
      public int[] getDimensions() { throw new RuntimeException("stub"); }
      public float[] getFloatData() { throw new RuntimeException("stub"); }
      public int[] getIntData() { throw new RuntimeException("stub"); }
    }

    public void reshape() { throw new RuntimeException("stub"); }
    public void run() { throw new RuntimeException("stub"); }
    /** Null where the model has no such input. */
    public Tensor getInput(String name) { throw new RuntimeException("stub"); }
    /** Null where the model has no such output. */
    public Tensor getOutput(String name) { throw new RuntimeException("stub"); }
  }

  /** Null where MNN refuses the file. */
  public static MNNNetInstance createFromFile(String path) { throw new RuntimeException("stub"); }
  /** Null where MNN has no such backend. */
  public Session createSession(Config config) { throw new RuntimeException("stub"); }
  public void release() { throw new RuntimeException("stub"); }
}
