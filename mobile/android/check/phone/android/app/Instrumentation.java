package android.app;

import android.content.Context;
import android.os.Bundle;

public class Instrumentation {
  public void onCreate(Bundle arguments) {}

  public void start() {
    new Thread(this::onStart).start();
  }

  public void onStart() {}

  public Context getTargetContext() {
    return new Context();
  }

  public void sendStatus(int resultCode, Bundle results) {
    results.print("STATUS");
    System.out.println("INSTRUMENTATION_STATUS_CODE: " + resultCode);
  }

  public void finish(int resultCode, Bundle results) {
    results.print("RESULT");
    System.out.println("INSTRUMENTATION_CODE: " + resultCode);
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }
}
