"""Files: hashes, atomic writes, staging folders and sweeping."""
