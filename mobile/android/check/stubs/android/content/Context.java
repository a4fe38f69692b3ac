package android.content;

public class Context {
  public android.content.res.AssetManager getAssets() { throw new RuntimeException("stub"); }
  public java.io.File getFilesDir() { throw new RuntimeException("stub"); }
  public java.io.File getExternalFilesDir(String type) { throw new RuntimeException("stub"); }
  public ContentResolver getContentResolver() { throw new RuntimeException("stub"); }
}
