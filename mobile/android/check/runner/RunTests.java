import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;

/** Runs the methods with @org.junit.Test of the named classes, each on a fresh instance; what Gradle does with JUnit. */
public final class RunTests {
  public static void main(String[] names) throws ReflectiveOperationException {
    int failed = 0;
    int passed = 0;
    for (String name : names) {
      Class<?> kind = Class.forName(name);
      for (Method method : kind.getDeclaredMethods()) {
        if (!method.isAnnotationPresent(org.junit.Test.class)) {
          continue;
        }
        try {
          method.invoke(kind.getDeclaredConstructor().newInstance());
          passed++;
        } catch (InvocationTargetException failure) {
          failed++;
          System.out.println("FAILED " + kind.getSimpleName() + "." + method.getName());
          failure.getCause().printStackTrace(System.out);
        }
      }
    }
    System.out.println(passed + " passed, " + failed + " failed");
    System.exit(failed == 0 && passed > 0 ? 0 : 1);
  }
}
