from edgekit.testing import TargetContract


class TestOnnx(TargetContract):
    name = "onnx"
