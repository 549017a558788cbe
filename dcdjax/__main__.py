"""`python -m dcdjax` is `dcdjax`."""

from dcdjax.cli import script

script()
