package org.pytorch;

public class Module {
  public IValue forward(IValue... inputs) { throw new RuntimeException("stub"); }
  public void destroy() {}
}
