"""Word embedding by low-rank doubly stochastic matrix decomposition, in JAX.

Names are imported when they are first used, so that `dcdjax --help` does not wait for JAX.
"""
# ruff: noqa: F401, the tables below export what type checkers and editors see imported

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dcdjax import evaluation, report, similarity
    from dcdjax.devices import processes
    from dcdjax.devices.preparation import prepare
    from dcdjax.embedding.embedding import Embedding
    from dcdjax.fitting.fit import fit
    from dcdjax.method import divergences
    from dcdjax.method.decomposition import divergence, lagrangian, multipliers, objective, update
    from dcdjax.similarity import weighting
    from dcdjax.solvers import gradient, incremental, pruning
    from dcdjax.solvers.full_batch import solve, solve_restarts
    from dcdjax.solvers.result import Solution, SolverError, Status, best, consensus, raise_on_failure
    from dcdjax.starts import initialize
    from dcdjax.text import cooccurrence, datasets
    from dcdjax.text.cooccurrence import Counts, count
    from dcdjax.util import progress

# Where each public module and each other public name is defined.
_MODULES = {
    "cooccurrence": "dcdjax.text.cooccurrence",
    "datasets": "dcdjax.text.datasets",
    "divergences": "dcdjax.method.divergences",
    "evaluation": "dcdjax.evaluation",
    "gradient": "dcdjax.solvers.gradient",
    "incremental": "dcdjax.solvers.incremental",
    "initialize": "dcdjax.starts.initialize",
    "processes": "dcdjax.devices.processes",
    "progress": "dcdjax.util.progress",
    "pruning": "dcdjax.solvers.pruning",
    "report": "dcdjax.report",
    "similarity": "dcdjax.similarity",
    "weighting": "dcdjax.similarity.weighting",
}
_NAMES = {
    "Counts": "dcdjax.text.cooccurrence",
    "Embedding": "dcdjax.embedding.embedding",
    "Solution": "dcdjax.solvers.result",
    "SolverError": "dcdjax.solvers.result",
    "Status": "dcdjax.solvers.result",
    "best": "dcdjax.solvers.result",
    "consensus": "dcdjax.solvers.result",
    "count": "dcdjax.text.cooccurrence",
    "divergence": "dcdjax.method.decomposition",
    "fit": "dcdjax.fitting.fit",
    "lagrangian": "dcdjax.method.decomposition",
    "multipliers": "dcdjax.method.decomposition",
    "objective": "dcdjax.method.decomposition",
    "prepare": "dcdjax.devices.preparation",
    "raise_on_failure": "dcdjax.solvers.result",
    "solve": "dcdjax.solvers.full_batch",
    "solve_restarts": "dcdjax.solvers.full_batch",
    "update": "dcdjax.method.decomposition",
}
__all__ = sorted(_MODULES | _NAMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("dcdjax")
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'dcdjax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
