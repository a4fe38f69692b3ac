from tests.targets.damage_contract import OpenvinoContract


class TestOpenvino(OpenvinoContract):
    name, named = "openvino", "'relevance'"
