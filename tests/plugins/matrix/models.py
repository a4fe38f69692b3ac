"""Models of a matrix in tests: tiny ones, and one whose process is killed when it is made for the first time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch
from torch import nn

from edgekit.model.spec import ModelSpec
from tests.modules import of_rows

MARK = "EDGEKIT_TEST_MARK"
"""Names the file that says that the process was killed."""


def linear() -> ModelSpec:
    torch.manual_seed(0)
    return of_rows("linear", nn.Linear(6, 4), 6)


def wide() -> ModelSpec:
    torch.manual_seed(0)
    return of_rows("wide", nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4)), 6)


def killed_once() -> ModelSpec:
    mark = Path(os.environ[MARK])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return linear()


def killed() -> ModelSpec:
    os.kill(os.getpid(), signal.SIGKILL)
    return linear()
