"""Minimize the objective from a start W."""
