"""Many models times many targets: a file that names them, and an export of its own for each pair."""
