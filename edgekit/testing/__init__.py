"""Contract suite that every target inherits, and helpers for tests of targets, shipped for third parties.

The suite is imported at first use: the small model can be exported without pytest.
"""

from typing import TYPE_CHECKING, Any

from edgekit.testing.models import SMALL, small_model

if TYPE_CHECKING:
    from edgekit.testing.contract import QuietListener, TargetContract

__all__ = ["SMALL", "QuietListener", "TargetContract", "small_model"]


def __getattr__(name: str) -> Any:
    if name in ("QuietListener", "TargetContract"):
        from edgekit.testing import contract

        return getattr(contract, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
