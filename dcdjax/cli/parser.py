"""Parse options of the command line, and suggest the right one for a wrong one."""

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from dcdjax.util import checks

# Options of `fit` in Python that have another name in the shell.
_FLAGS = {"num_topics": "topics", "key": "seed", "random_state": "seed", "devices": "cores"}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are a line, and suggest what was meant."""

    def __init__(self, **options: Any) -> None:
        # An abbreviation would mean something else once there are more options.
        super().__init__(**options, allow_abbrev=False)
        self.commands: dict[str, Parser] = {}

    def suggestion(self, unknown: Sequence[str]) -> str:
        """Return a hint at the option that the first unknown one stands for, or an empty text."""
        first = next((one.partition("=")[0] for one in unknown if one.startswith("--")), None)
        if first is None:
            return ""
        named = {flag.lstrip("-").replace("-", "_"): flag for flag in self._option_string_actions}
        hint = checks.suggestion(first.lstrip("-").replace("-", "_"), named, _FLAGS)
        for name, flag in named.items():
            hint = hint.replace(f" {name}?", f" {flag}?")
        return hint

    def error(self, message: str) -> NoReturn:
        """End the process with one line."""
        if match := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            message += checks.did_you_mean(match[1], [one.strip("'") for one in match[2].split(", ")])
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _whole(least: int) -> Any:
    def whole(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        return value

    whole.__name__ = "int"  # argparse calls the type so: invalid int value
    return whole


natural, positive = _whole(0), _whole(1)


def numbers(text: str) -> list[int] | str:
    """Return whole numbers that are separated by commas, or "auto"."""
    if text == "auto":
        return text
    return [positive(part) for part in text.split(",")]


numbers.__name__ = "number of topics"
