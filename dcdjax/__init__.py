"""Word embedding by low-rank doubly stochastic matrix decomposition, in JAX.

Names are imported when they are first used, so that `dcdjax --help` does not wait for JAX.
"""
# ruff: noqa: F401, the tables below export what type checkers and editors see imported

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dcdjax import evaluation, report, similarity
    from dcdjax.counting import cooccurrence, phrases, stop_words
    from dcdjax.counting.cooccurrence import Counts, count
    from dcdjax.devices import processes
    from dcdjax.devices.preparation import prepare
    from dcdjax.embedding.embedding import Embedding
    from dcdjax.fitting.fit import fit
    from dcdjax.fitting.num_topics import choose_num_topics
    from dcdjax.method import divergences
    from dcdjax.method.decomposition import divergence, lagrangian, multipliers, objective, update
    from dcdjax.similarity import weighting
    from dcdjax.solvers import gradient, incremental, pruning
    from dcdjax.solvers.full_batch import solve, solve_restarts
    from dcdjax.solvers.result import Solution, SolverError, Status, best, consensus, raise_on_failure
    from dcdjax.starts import initialize
    from dcdjax.text import datasets
    from dcdjax.util import progress

# The public names of each package and module, as imported above. Some are modules themselves.
_PACKAGES = ("evaluation", "report", "similarity")
_OWNERS = {
    name: owner
    for owner, names in {
        "counting": ("cooccurrence", "phrases", "stop_words"),
        "counting.cooccurrence": ("Counts", "count"),
        "devices": ("processes",),
        "devices.preparation": ("prepare",),
        "embedding.embedding": ("Embedding",),
        "fitting.fit": ("fit",),
        "fitting.num_topics": ("choose_num_topics",),
        "method": ("divergences",),
        "method.decomposition": ("divergence", "lagrangian", "multipliers", "objective", "update"),
        "similarity": ("weighting",),
        "solvers": ("gradient", "incremental", "pruning"),
        "solvers.full_batch": ("solve", "solve_restarts"),
        "solvers.result": ("Solution", "SolverError", "Status", "best", "consensus", "raise_on_failure"),
        "starts": ("initialize",),
        "text": ("datasets",),
        "util": ("progress",),
    }.items()
    for name in names
}
__all__ = sorted([*_PACKAGES, *_OWNERS])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("dcdjax")
    if name in _PACKAGES:
        return import_module(f"dcdjax.{name}")
    if name in _OWNERS:
        owner = import_module(f"dcdjax.{_OWNERS[name]}")
        return getattr(owner, name) if hasattr(owner, name) else import_module(f"{owner.__name__}.{name}")
    from dcdjax.util.checks import did_you_mean

    raise AttributeError(f"module 'dcdjax' has no attribute {name!r}{did_you_mean(name, __all__)}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
