package android.content;

import android.os.PowerManager;
import java.io.File;

public class Context {
  private static final PowerManager POWER = new PowerManager();

  public File[] getExternalMediaDirs() {
    return new File[] {new File(System.getProperty("phone.media"))};
  }

  public Object getSystemService(String name) {
    return POWER;
  }

  public Intent registerReceiver(BroadcastReceiver receiver, IntentFilter filter) {
    return new Intent();
  }
}
