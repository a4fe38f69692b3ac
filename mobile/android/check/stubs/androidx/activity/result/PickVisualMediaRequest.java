package androidx.activity.result;

import androidx.activity.result.contract.ActivityResultContracts.PickVisualMedia.VisualMediaType;

public final class PickVisualMediaRequest {
  public PickVisualMediaRequest(VisualMediaType mediaType) {}
}
