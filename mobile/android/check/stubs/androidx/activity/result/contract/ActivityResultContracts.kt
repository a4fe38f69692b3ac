package androidx.activity.result.contract

import android.net.Uri
import androidx.activity.result.PickVisualMediaRequest

class ActivityResultContracts private constructor() {
    open class PickVisualMedia : ActivityResultContract<PickVisualMediaRequest, Uri?>() {
        interface VisualMediaType

        object ImageOnly : VisualMediaType
    }
}
