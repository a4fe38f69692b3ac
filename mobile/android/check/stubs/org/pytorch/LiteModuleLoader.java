package org.pytorch;

public class LiteModuleLoader {
  public static Module load(String modelPath) { throw new RuntimeException("stub"); }
}
