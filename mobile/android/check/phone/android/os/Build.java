package android.os;

public class Build {
  public static final String MANUFACTURER = "Debian";
  public static final String MODEL = "JVM in a phone's role";
  public static final String SOC_MANUFACTURER = "Debian";
  public static final String SOC_MODEL = "unknown";
  public static final String UNKNOWN = "unknown";
  public static final String[] SUPPORTED_ABIS = {"x86_64"};

  public static final class VERSION {
    public static final String RELEASE = "15";
    public static final int SDK_INT = 35;
  }

  public static final class VERSION_CODES {
    public static final int Q = 29;
    public static final int S = 31;
  }
}
