"""Answers a pack's questions: the only code of edgekit that runs elsewhere. It needs Python 3.10, numpy and a runtime.

Nothing is judged here: what comes back are raw answers, times, and what this host says of itself.
"""
