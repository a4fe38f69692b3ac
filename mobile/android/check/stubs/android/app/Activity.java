package android.app;

public class Activity extends android.content.Context {
  public static final int RESULT_OK = -1;
  public static final int RESULT_CANCELED = 0;
  protected void onCreate(android.os.Bundle state) {}
  protected void onDestroy() {}
  public void setContentView(int layout) {}
  public <T extends android.view.View> T findViewById(int id) { throw new RuntimeException("stub"); }
  public final void runOnUiThread(Runnable action) {}
}
