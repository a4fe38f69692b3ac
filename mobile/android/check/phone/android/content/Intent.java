package android.content;

public class Intent {
  /** Tenths of a degree. */
  public int getIntExtra(String name, int otherwise) {
    return 312;
  }
}
