package org.pytorch.executorch;

public class Module {
  public static final int LOAD_MODE_MMAP = 1;
  public static Module load(String modelPath, int loadMode, int numThreads) { throw new RuntimeException("stub"); }
  public EValue[] forward(EValue... inputs) { throw new RuntimeException("stub"); }
  public void destroy() {}
}
