package android.content;

public class Context {
  public static final String POWER_SERVICE = "power";
  public Context getApplicationContext() { throw new RuntimeException("stub"); }
  public final String getString(int id, Object... arguments) { throw new RuntimeException("stub"); }
  public android.content.res.AssetManager getAssets() { throw new RuntimeException("stub"); }
  public String getPackageName() { throw new RuntimeException("stub"); }
  public android.content.pm.PackageManager getPackageManager() { throw new RuntimeException("stub"); }
  public java.io.File getNoBackupFilesDir() { throw new RuntimeException("stub"); }
  public java.io.File getExternalFilesDir(String type) { throw new RuntimeException("stub"); }
  public java.io.File[] getExternalMediaDirs() { throw new RuntimeException("stub"); }
  public Object getSystemService(String name) { throw new RuntimeException("stub"); }
  public Intent registerReceiver(BroadcastReceiver receiver, IntentFilter filter) { throw new RuntimeException("stub"); }
  public ContentResolver getContentResolver() { throw new RuntimeException("stub"); }
}
