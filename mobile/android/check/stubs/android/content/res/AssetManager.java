package android.content.res;

public final class AssetManager {
  public java.io.InputStream open(String name) throws java.io.IOException { throw new RuntimeException("stub"); }
}
