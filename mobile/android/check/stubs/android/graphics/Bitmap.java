package android.graphics;

public final class Bitmap {
  public enum Config { ARGB_8888, HARDWARE }
  public int getWidth() { throw new RuntimeException("stub"); }
  public int getHeight() { throw new RuntimeException("stub"); }
  public Config getConfig() { throw new RuntimeException("stub"); }
  public Bitmap copy(Config config, boolean mutable) { throw new RuntimeException("stub"); }
  public void setPixels(int[] pixels, int offset, int stride, int x, int y, int width, int height) {}
  public static Bitmap createBitmap(int width, int height, Config config) { throw new RuntimeException("stub"); }
  public static Bitmap createScaledBitmap(Bitmap source, int width, int height, boolean filter) { throw new RuntimeException("stub"); }
  public void getPixels(int[] pixels, int offset, int stride, int x, int y, int width, int height) {}
}
