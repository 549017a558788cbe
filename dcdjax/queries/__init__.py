"""Find neighbors, similarities and new rows of words from W."""
