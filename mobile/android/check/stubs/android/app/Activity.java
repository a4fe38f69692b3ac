package android.app;

public class Activity extends android.content.Context {
  protected void onCreate(android.os.Bundle state) {}
  protected void onDestroy() {}
  public void setContentView(int layout) {}
  public <T extends android.view.View> T findViewById(int id) { throw new RuntimeException("stub"); }
  public final void runOnUiThread(Runnable action) {}
}
