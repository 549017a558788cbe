"""Make the start W that a solver begins from."""
