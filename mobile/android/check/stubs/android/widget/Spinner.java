package android.widget;

public class Spinner extends AdapterView<SpinnerAdapter> {
  public void setAdapter(SpinnerAdapter adapter) {}
  public SpinnerAdapter getAdapter() { throw new RuntimeException("stub"); }
}
