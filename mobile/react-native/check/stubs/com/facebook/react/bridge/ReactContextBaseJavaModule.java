package com.facebook.react.bridge;

public abstract class ReactContextBaseJavaModule implements NativeModule {
  private final ReactApplicationContext context;
  public ReactContextBaseJavaModule(ReactApplicationContext context) { this.context = context; }
  protected final ReactApplicationContext getReactApplicationContext() { return context; }
  @Override public void initialize() {}
  @Override public boolean canOverrideExistingModule() { return false; }
  @Override public void invalidate() {}
}
