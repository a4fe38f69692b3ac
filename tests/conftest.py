"""What all tests share: latency is measured briefly, since no test judges it."""

import os

os.environ.setdefault("EDGEKIT_TIMED_SECONDS", "0.05")
