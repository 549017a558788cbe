"""Read text and count which words stand near each other."""
