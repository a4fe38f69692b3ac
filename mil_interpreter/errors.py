"""Errors. Every message is one line: what failed, and the value in quotes.

MilError
├── PackageError          a package that is missing, damaged, or computes something other than it declares
├── UnsupportedError      a valid program that uses something that the interpreter lacks
└── InputError            an input that is missing or has a shape that the package does not accept
"""

from __future__ import annotations


class MilError(Exception):
    """Base of all errors here."""


class PackageError(MilError):
    """The package, its program or its weights are missing or damaged."""


class UnsupportedError(MilError):
    """The interpreter lacks an operator, parameter, type or kind of model. The message names it."""


class InputError(MilError):
    """An input does not fit the package's declaration."""
