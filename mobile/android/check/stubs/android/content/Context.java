package android.content;

public class Context {
  public Context getApplicationContext() { throw new RuntimeException("stub"); }
  public final String getString(int id, Object... arguments) { throw new RuntimeException("stub"); }
  public android.content.res.AssetManager getAssets() { throw new RuntimeException("stub"); }
  public java.io.File getFilesDir() { throw new RuntimeException("stub"); }
  public java.io.File getExternalFilesDir(String type) { throw new RuntimeException("stub"); }
  public ContentResolver getContentResolver() { throw new RuntimeException("stub"); }
}
