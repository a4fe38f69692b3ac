"""The model card of the folder `hub`: README.md with YAML front matter, as the Hugging Face hub shows it."""

from __future__ import annotations

CARD = "README.md"
MARK = "<!-- model card of edgekit -->"
"""Tells a card of edgekit from one that somebody else wrote."""


def is_own_card(text: str) -> bool:
    """Return whether edgekit wrote a card."""
    return MARK in text
