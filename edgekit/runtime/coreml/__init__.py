"""Core ML packages without Apple hardware: reading, writing and computing saved ML Programs.

    package.py       a .mlpackage on disk <-> records
    blob.py          its weight file
    decode.py        its protobuf -> records
    records.py       what a program says
    interpreter.py   walks a program
    operators/       the operators, one file a family
    runtime.py       the two ways to run a package: the interpreter, and Core ML itself on macOS
"""
