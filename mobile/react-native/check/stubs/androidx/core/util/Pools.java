package androidx.core.util;

public final class Pools {
  public static class SimplePool<T> {
    public SimplePool(int size) {}
    public T acquire() { return null; }
    public boolean release(T instance) { return true; }
  }
}
