import math

from training import drawing


def test_no_table_entry_depends_on_how_a_platform_rounds_sines() -> None:
    exact = [4096 * math.sin(2 * math.pi * step / drawing.TURN) for step in range(drawing.TURN)]
    exact += [drawing.UNIT * math.sin(k * math.tau / n) for n in (3, 5) for k in range(n)]
    exact += [drawing.UNIT * math.cos(k * math.tau / n) for n in (3, 5) for k in range(n)]
    assert min(abs(abs(value - math.floor(value)) - 0.5) for value in exact) > 1e-6
