"""One file is one target; the file name is the target name (`_` becomes `-`)."""
