from edgekit.testing import TargetContract


class TestOpenvino(TargetContract):
    name = "openvino-example"
