package android.os;

public final class Bundle {
  public void putString(String key, String value) {}
  public String getString(String key) { throw new RuntimeException("stub"); }
}
