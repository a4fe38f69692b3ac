package android.widget;

import android.view.View;

public abstract class AdapterView<T> extends View {
  public interface OnItemSelectedListener {
    void onItemSelected(AdapterView<?> parent, View view, int position, long id);
    void onNothingSelected(AdapterView<?> parent);
  }
  public void setOnItemSelectedListener(OnItemSelectedListener listener) {}
  public OnItemSelectedListener getOnItemSelectedListener() { throw new RuntimeException("stub"); }
}
