package android.os;

public final class PowerManager {
  public int getCurrentThermalStatus() { throw new RuntimeException("stub"); }
}
