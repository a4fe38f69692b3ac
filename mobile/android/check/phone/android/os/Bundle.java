package android.os;

import java.util.LinkedHashMap;
import java.util.Map;

public final class Bundle {
  private final Map<String, String> texts = new LinkedHashMap<>();

  public void putString(String key, String value) {
    texts.put(key, value);
  }

  public String getString(String key) {
    return texts.get(key);
  }

  public void print(String kind) {
    texts.forEach((key, value) -> System.out.println("INSTRUMENTATION_" + kind + ": " + key + "=" + value));
  }
}
