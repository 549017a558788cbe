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

# The public modules, and the other public names, each with the module that holds it.
_MODULES = {
    path.rpartition(".")[2]: path
    for path in (
        *("dcdjax.devices.processes", "dcdjax.evaluation", "dcdjax.method.divergences", "dcdjax.report"),
        *("dcdjax.similarity", "dcdjax.similarity.weighting", "dcdjax.solvers.gradient"),
        *("dcdjax.solvers.incremental", "dcdjax.solvers.pruning", "dcdjax.starts.initialize"),
        *("dcdjax.text.cooccurrence", "dcdjax.text.datasets", "dcdjax.util.progress"),
    )
}
_NAMES = {
    name: path
    for path, names in {
        "dcdjax.devices.preparation": "prepare",
        "dcdjax.embedding.embedding": "Embedding",
        "dcdjax.fitting.fit": "fit",
        "dcdjax.method.decomposition": "divergence lagrangian multipliers objective update",
        "dcdjax.solvers.full_batch": "solve solve_restarts",
        "dcdjax.solvers.result": "Solution SolverError Status best consensus raise_on_failure",
        "dcdjax.text.cooccurrence": "Counts count",
    }.items()
    for name in names.split()
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
