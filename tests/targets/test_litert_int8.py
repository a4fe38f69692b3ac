from tests.targets.litert_contract import LitertContract


class TestLitertInt8(LitertContract):
    name = "litert-int8"
