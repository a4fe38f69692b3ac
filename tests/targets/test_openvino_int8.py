from tests.targets.openvino_contract import OpenvinoContract


class TestOpenvinoInt8(OpenvinoContract):
    name = "openvino-int8"
