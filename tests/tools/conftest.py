"""The exam's models, exported once a session, and what is drawn from their graphs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from tools.exam.case import PRECISIONS, Paper
from tools.exam.clean import Clean
from tools.exam.faults import Fault
from tools.exam.models import MODELS
from tools.exam.sitting import ROOT, Room

EXAMINED = MODELS if os.environ.get("EDGEKIT_SLOW") else ("classifier", "embedding")
"""All models in the nightly mode; else the one that names classes, and one that gives a vector."""


@dataclass(frozen=True)
class Drawn:
    """One exported graph with its faults and clean variants."""

    paper: Paper
    faults: tuple[Fault, ...]
    clean: tuple[Clean, ...]


@pytest.fixture(scope="session")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT))
        yield Room(tmp_path_factory.mktemp("exam"))
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def drawn(room: Room) -> tuple[Drawn, ...]:
    """The examined models in all precisions."""
    papers = [room.paper(model, target) for model in EXAMINED for target in PRECISIONS]
    return tuple(Drawn(paper, tuple(paper.drawn()), tuple(paper.clean())) for paper in papers)
