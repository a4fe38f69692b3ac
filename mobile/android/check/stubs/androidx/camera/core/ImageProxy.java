package androidx.camera.core;

public interface ImageProxy extends AutoCloseable {
  int getHeight();
  int getWidth();
  PlaneProxy[] getPlanes();
  ImageInfo getImageInfo();
  void close();

  interface PlaneProxy {
    int getRowStride();
    int getPixelStride();
    java.nio.ByteBuffer getBuffer();
  }
}
