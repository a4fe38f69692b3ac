from tests.targets.damage_contract import OpenvinoContract


class TestOpenvinoInt8(OpenvinoContract):
    name = "openvino-int8"
