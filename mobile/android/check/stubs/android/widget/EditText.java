package android.widget;

public class EditText extends TextView {}
