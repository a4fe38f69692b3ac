package android.widget;

public class TextView extends android.view.View {
  public interface OnEditorActionListener { boolean onEditorAction(TextView view, int action, android.view.KeyEvent event); }
  public void setText(CharSequence text) {}
  public CharSequence getText() { throw new RuntimeException("stub"); }
  public void setOnEditorActionListener(OnEditorActionListener listener) {}
}
