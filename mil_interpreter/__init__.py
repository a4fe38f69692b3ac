"""Core ML's ML Programs (MIL) without Apple hardware: saved packages read, written and computed with NumPy.

- `records.py`: what a program says; `package.py`: a `.mlpackage` on disk <-> records, through `decode.py` (protobuf)
  and `blob.py` (weight files).
- `plan.py`: a program checked and made ready; `interpreter.py`: walks the plan; `operators/`: one file a family.
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
