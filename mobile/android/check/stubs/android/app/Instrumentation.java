package android.app;

public class Instrumentation {
  public void onCreate(android.os.Bundle arguments) {}
  public void start() {}
  public void onStart() {}
  public android.content.Context getTargetContext() { throw new RuntimeException("stub"); }
  public void sendStatus(int resultCode, android.os.Bundle results) {}
  public void finish(int resultCode, android.os.Bundle results) {}
}
