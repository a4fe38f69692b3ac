package android.content.pm;

public abstract class PackageManager {
  public static class NameNotFoundException extends android.util.AndroidException {}
  public abstract PackageInfo getPackageInfo(String name, int flags) throws NameNotFoundException;
}
