"""Machine code that IREE compiles."""
