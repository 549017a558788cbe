"""Word embedding by low-rank doubly stochastic matrix decomposition, in JAX.

Names are imported when they are first used, so that `dcdjax --help` does not wait for JAX.
"""

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

# Where each public name is defined. A module stands with its package, another name with its module.
_MODULES = {
    "cooccurrence": "text",
    "datasets": "text",
    "divergences": "method",
    "evaluation": "",
    "gradient": "solvers",
    "incremental": "solvers",
    "initialize": "starts",
    "processes": "devices",
    "progress": "util",
    "pruning": "solvers",
    "report": "",
    "similarity": "",
    "weighting": "similarity",
}
_NAMES = {
    "Counts": "text.cooccurrence",
    "Embedding": "embedding.embedding",
    "Solution": "solvers.result",
    "SolverError": "solvers.result",
    "Status": "solvers.result",
    "best": "solvers.result",
    "consensus": "solvers.result",
    "count": "text.cooccurrence",
    "divergence": "method.decomposition",
    "fit": "fitting.fit",
    "lagrangian": "method.decomposition",
    "multipliers": "method.decomposition",
    "objective": "method.decomposition",
    "prepare": "devices.preparation",
    "raise_on_failure": "solvers.result",
    "solve": "solvers.full_batch",
    "solve_restarts": "solvers.full_batch",
    "update": "method.decomposition",
}

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
    "divergences",
    "evaluation",
    "fit",
    "gradient",
    "incremental",
    "initialize",
    "lagrangian",
    "multipliers",
    "objective",
    "prepare",
    "processes",
    "progress",
    "pruning",
    "raise_on_failure",
    "report",
    "similarity",
    "solve",
    "solve_restarts",
    "update",
    "weighting",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("dcdjax")
    if name in _MODULES:
        return import_module(".".join(part for part in ("dcdjax", _MODULES[name], name) if part))
    if name in _NAMES:
        return getattr(import_module(f"dcdjax.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'dcdjax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
