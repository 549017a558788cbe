"""Facts of two runs, as JSON has them, enter; what differs between them leaves, by name."""

import json
from collections.abc import Iterator, Mapping
from typing import Any


def differing(first: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The name of each fact that differs, such as S.sha256, and what both say of it.

    Example:
      >>> list(differing({"tol": 0.1, "S": {"sha256": "a"}}, {"S": {"sha256": "b"}}))
      [('tol', '0.1', 'not given'), ('S.sha256', '"a"', '"b"')]
    """
    here, there = _flat(first), _flat(other)
    for name in {**here, **there}:
        one, two = here.get(name, "not given"), there.get(name, "not given")
        if one != two:
            yield name, one, two


def _flat(facts: Mapping[str, Any], before: str = "") -> dict[str, str]:
    flat = {}
    for name, value in facts.items():
        inside = isinstance(value, dict)
        flat |= _flat(value, f"{before}{name}.") if inside else {before + name: json.dumps(value)}
    return flat
