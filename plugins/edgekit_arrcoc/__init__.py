"""ARR-COC, the built-in model family: looks at an image with a query in mind and grants visual tokens to its patches.

In flow order: `texture` (image -> features), `knowing` (three scorers), `balancing` (one relevance map), `attending`
(budgets and top-K), and `model`, which composes them and realizes the chosen patches; `arr_coc_01` does so for the
public 0.1 checkpoints. `presets` declares them to edgekit, `queries` encodes words, `datasets` reads the shipped
pictures. The repository's `training/` renders the pictures and trains.
"""

from __future__ import annotations

from edgekit.doors import Source

_HOME = "edgekit_arrcoc.presets"


def _preset(name: str, function: str) -> Source:
    return Source(form=name, names=(name,), factory=f"{_HOME}:{function}", takes_words=False)


TINY = _preset("arr-coc-tiny", "arr_coc_tiny")
BASE = _preset("arr-coc-base", "arr_coc_base")
PUBLISHED = _preset("arr-coc-0.1", "arr_coc_0_1")
CHECKPOINT = Source(
    form="a checkpoint's path",
    suffixes=(".safetensors", ".pt", ".pth", ".bin", ".ckpt", ""),
    open=f"{_HOME}:open_checkpoint",
    trusted_factories=(f"{_HOME}:arr_coc_0_1_wide",),
    takes_words=False,
)
