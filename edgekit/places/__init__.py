"""Places other than a target's own: other runtimes and settings, on this host or another.

Questions and artifacts go there in a pack, raw answers come back, and are judged here.
"""
