"""Core ML packages without Apple hardware: reading, writing and computing saved ML Programs.

- `records.py`: what a program says; `package.py`: a `.mlpackage` on disk <-> records, by way of `proto.py` (protobuf
  classes), `decode.py` (protobuf -> records) and `blob.py` (weight files).
- `plan.py`: a program checked and made ready; `step.py`: one of its operations; `interpreter.py`: walks the plan.
- `operators/`: the operators, one file a family.
- `contract.py`: what a package says of the model it was made from.
- `runtime.py`: the two ways to run a package, by the interpreter and, on macOS, by Core ML itself.
"""
