package org.edgekit.sample;

/** What the resource compiler makes of sample/src/main/res. */
public final class R {
  public static final class layout { public static final int activity_main = 0; }
  public static final class id { public static final int picture = 0, pick = 0, query = 0, model = 0, check = 0, status = 0; }
  public static final class string { public static final int checking = 0, ready = 0, answer = 0, nothing = 0, checked = 0; }
}
