"""Core ML's ML Programs (MIL) without Apple hardware: saved packages read, written and computed with NumPy.

- `records.py`: what a program says; `package.py`: a `.mlpackage` on disk <-> records.
- `interpreter.py`: a program checked, made ready and computed; `operators/`: a table for each of MIL's modules.
- `errors.py`: what can go wrong.
"""

from mil_interpreter.errors import InputError, MilError, PackageError, UnsupportedError
from mil_interpreter.interpreter import Interpreter
from mil_interpreter.package import read_package, write_package

__all__ = [
    "InputError",
    "Interpreter",
    "MilError",
    "PackageError",
    "UnsupportedError",
    "read_package",
    "write_package",
]
