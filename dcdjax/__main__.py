"""`python -m dcdjax` is `dcdjax`."""

from dcdjax.cli.main import script

script()
