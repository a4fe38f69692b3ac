package android.graphics;

public final class ImageDecoder {
  public static final int ALLOCATOR_SOFTWARE = 1;
  public interface OnHeaderDecodedListener { void onHeaderDecoded(ImageDecoder decoder, ImageInfo info, Source source); }
  public abstract static class Source {}
  public static class ImageInfo { public android.util.Size getSize() { throw new RuntimeException("stub"); } }
  public void setAllocator(int allocator) {}
  public void setTargetSampleSize(int size) {}
  public static Source createSource(android.content.ContentResolver resolver, android.net.Uri uri) { throw new RuntimeException("stub"); }
  public static Bitmap decodeBitmap(Source source, OnHeaderDecodedListener listener) throws java.io.IOException { throw new RuntimeException("stub"); }
}
