from tests.targets.litert.contract import LitertContract


class TestLitertInt8(LitertContract):
    name = "litert-int8"
