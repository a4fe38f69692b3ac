"""Targets, one per file. The file name is the target name (`_` becomes `-`)."""
