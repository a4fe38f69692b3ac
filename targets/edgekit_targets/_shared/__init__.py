"""What two targets share; files and folders that start with _ are no targets."""
