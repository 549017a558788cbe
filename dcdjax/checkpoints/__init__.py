"""Save a run while it solves, and load it to continue."""
