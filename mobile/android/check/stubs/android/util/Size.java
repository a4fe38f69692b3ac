package android.util;

public final class Size {
  public int getWidth() { throw new RuntimeException("stub"); }
  public int getHeight() { throw new RuntimeException("stub"); }
}
