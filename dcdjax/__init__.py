"""Word embedding by low-rank doubly stochastic matrix decomposition, in JAX.

A room is imported when one of its names is first used: `dcdjax --help` need not wait for JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dcdjax import cooccurrence, datasets, evaluation, initialize, progress, report, similarity
    from dcdjax.cooccurrence import Counts, count
    from dcdjax.decomposition import divergence, lagrangian, multipliers, objective, update
    from dcdjax.embedding import Embedding
    from dcdjax.fitting import fit
    from dcdjax.layout import prepare
    from dcdjax.solver import (
        Solution,
        SolverError,
        Status,
        best,
        consensus,
        raise_on_failure,
        solve,
        solve_restarts,
    )

__all__ = [
    "Counts",
    "Embedding",
    "Solution",
    "SolverError",
    "Status",
    "best",
    "consensus",
    "cooccurrence",
    "count",
    "datasets",
    "divergence",
    "evaluation",
    "fit",
    "initialize",
    "lagrangian",
    "multipliers",
    "objective",
    "prepare",
    "progress",
    "raise_on_failure",
    "report",
    "similarity",
    "solve",
    "solve_restarts",
    "update",
]

_ROOMS = {
    **dict.fromkeys(("divergence", "lagrangian", "multipliers", "objective", "update"), "decomposition"),
    "Counts": "cooccurrence",
    "Embedding": "embedding",
    "count": "cooccurrence",
    "fit": "fitting",
    "prepare": "layout",
}
_MODULES = {*("cooccurrence", "datasets", "evaluation", "initialize", "progress", "report", "similarity")}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("dcdjax")
    if name not in __all__:
        raise AttributeError(f"module 'dcdjax' has no attribute {name!r}")
    if name in _MODULES:
        return import_module(f"dcdjax.{name}")
    return getattr(import_module(f"dcdjax.{_ROOMS.get(name, 'solver')}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
