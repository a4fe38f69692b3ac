package com.facebook.infer.annotation;

public @interface Nullsafe {
  enum Mode { LOCAL }
  Mode value();
}
