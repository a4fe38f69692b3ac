import torch

from edgekit_arrcoc.model import ArrCoc
from edgekit_arrcoc.presets import HOME, arr_coc_tiny
from training import obvious, presence


def test_the_obvious_picture_is_found_and_nothing_else_in_it() -> None:
    torch.set_num_threads(1)  # a second one spins where other work needs the core
    model = arr_coc_tiny().module
    assert isinstance(model, ArrCoc)
    found = obvious.measure(model, presence.load(HOME))
    assert (found.asked, found.others) == (165, 3135)
    assert found.found >= 0.95, found.missed
    assert found.refused >= 0.98, found.mistaken
