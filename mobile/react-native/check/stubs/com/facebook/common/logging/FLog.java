package com.facebook.common.logging;

public final class FLog {
  public static void e(String tag, String message) { throw new RuntimeException(message); }
}
