from tests.targets.openvino_contract import OpenvinoContract


class TestOpenvino(OpenvinoContract):
    name, named = "openvino", "'relevance'"
