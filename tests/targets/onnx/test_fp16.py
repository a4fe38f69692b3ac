from edgekit.testing import TargetContract


class TestOnnxFp16(TargetContract):
    name = "onnx-fp16"
