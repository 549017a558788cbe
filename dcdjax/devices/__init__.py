"""Lay S out on devices and pass over it there, in XLA or in C."""
