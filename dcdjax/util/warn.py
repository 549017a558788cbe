"""Warn at the line where the user called the package."""

import sys
import warnings


def warn(message: str, category: type[Warning]) -> None:
    """Issue a warning that points to the caller of the outermost function of this package."""
    level, outermost, frame = 0, 0, sys._getframe(0)
    while frame is not None:
        level += 1
        if frame.f_globals.get("__name__", "").startswith("dcdjax."):
            outermost = level
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=outermost + 1)
