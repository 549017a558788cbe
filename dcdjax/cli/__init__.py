"""Provide the `dcdjax` command."""
