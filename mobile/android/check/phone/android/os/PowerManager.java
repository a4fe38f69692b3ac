package android.os;

public final class PowerManager {
  private int asked = 0;

  /** Warmer at each look. */
  public int getCurrentThermalStatus() {
    return asked++;
  }
}
