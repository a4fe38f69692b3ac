import android.app.Instrumentation;
import android.os.Bundle;

/** `am instrument -w -r -e KEY VALUE APP/.CLASS`, for one app, whose class is on the class path. */
public final class Am {
  public static void main(String[] words) throws ReflectiveOperationException {
    Bundle arguments = new Bundle();
    for (int i = 0; i + 2 < words.length; i++) {
      if (words[i].equals("-e")) {
        arguments.putString(words[i + 1], words[i + 2]);
      }
    }
    String name = words[words.length - 1].replace("/", "");
    Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
      error.printStackTrace();
      System.out.println("INSTRUMENTATION_RESULT: shortMsg=Process crashed.\nINSTRUMENTATION_CODE: 0");
      System.out.flush();
      Runtime.getRuntime().halt(1);
    });
    ((Instrumentation) Class.forName(name).getDeclaredConstructor().newInstance()).onCreate(arguments);
  }
}
