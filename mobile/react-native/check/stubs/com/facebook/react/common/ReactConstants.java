package com.facebook.react.common;

public final class ReactConstants {
  public static final String TAG = "ReactNative";
}
