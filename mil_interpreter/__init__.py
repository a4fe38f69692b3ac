"""Core ML's ML Programs (MIL) without Apple hardware: saved packages read, written and computed with NumPy.

- `records.py`: the records of a program. `package.py`: a `.mlpackage` on disk <-> records.
- `interpreter.py`: a program checked, prepared and computed. `operators/`: a table for each of MIL's modules.
- `errors.py`: the errors.
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
