"""The contract suite that every target inherits, and what tests of targets need. Shipped for third parties."""

from edgekit.testing.contract import TargetContract
from edgekit.testing.listener import QuietListener
from edgekit.testing.models import SMALL, small_model

__all__ = ["SMALL", "QuietListener", "TargetContract", "small_model"]
