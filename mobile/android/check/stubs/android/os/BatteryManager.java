package android.os;

public class BatteryManager {
  public static final String EXTRA_TEMPERATURE = "temperature";
}
