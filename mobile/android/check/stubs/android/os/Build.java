package android.os;

/** Fields that a device fills: no constants, which a compiler would copy. */
public class Build {
  public static final String MANUFACTURER = System.getProperty("stub");
  public static final String MODEL = System.getProperty("stub");
  public static final String SOC_MANUFACTURER = System.getProperty("stub");
  public static final String SOC_MODEL = System.getProperty("stub");
  public static final String UNKNOWN = "unknown";
  public static final String[] SUPPORTED_ABIS = {};
  public static final class VERSION {
    public static final String RELEASE = System.getProperty("stub");
    public static final int SDK_INT = Integer.getInteger("stub", 0);
  }
  public static final class VERSION_CODES { public static final int Q = 29; public static final int S = 31; }
}
