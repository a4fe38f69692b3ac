from edgekit.testing import TargetContract


class TestOnnxJson(TargetContract):
    name = "onnx-json"
