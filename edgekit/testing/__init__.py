"""The contract suite that every target inherits, and what tests of targets need. Shipped for third parties.

The suite is imported when it is asked for: the small model is exported where there is no pytest too.
"""

from typing import TYPE_CHECKING, Any

from edgekit.testing.contract import QuietListener
from edgekit.testing.models import SMALL, small_model

if TYPE_CHECKING:
    from edgekit.testing.contract import TargetContract

__all__ = ["SMALL", "QuietListener", "TargetContract", "small_model"]


def __getattr__(name: str) -> Any:
    if name == "TargetContract":
        from edgekit.testing.contract import TargetContract

        return TargetContract
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
