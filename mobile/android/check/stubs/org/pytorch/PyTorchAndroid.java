package org.pytorch;

public final class PyTorchAndroid {
  public static void setNumThreads(int numThreads) {}
}
