"""Save the states and solutions of a run while it solves, and load them to continue the run."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dcdjax.checkpoints.checkpoint_files import CheckpointFolder, CheckpointWarning
from dcdjax.devices import processes
from dcdjax.solvers.full_batch import State
from dcdjax.solvers.result import History, Solution, Status
from dcdjax.util.store import Stored
from dcdjax.util.warn import warn

_VECTORS = "vectors"
Result = TypeVar("Result", State, Solution)


class Expected(NamedTuple):
    """State what a run saves, so that a file with anything else is not used.

    Attributes:
      num_words: N.
      num_topics: the number of topics of each start.
      num_dimensions: the dimensions of the spectral vectors.
      max_steps: the steps that a history has room for.
      dtype: the dtype of W.
    """

    num_words: int
    num_topics: Sequence[int]
    num_dimensions: int
    max_steps: int
    dtype: np.dtype


class Checkpoint:
    """Save the state of each start under way, and the solution of each start that has finished.

    Each start has files of its own, so a damaged file costs the work of one start only. With several
    processes the first one saves; the others have what was loaded, and save nothing.

    Attributes:
      finished: the solutions that were loaded, by the number of their start.
      under_way: the states that were loaded, by the number of their start.
      vectors: the spectral vectors, if they were loaded.
      resumed_at: the number of steps of all loaded starts together, or None if nothing was loaded.
    """

    def __init__(self, folder: CheckpointFolder | None, every: float, tensors: Mapping[str, Any]) -> None:
        """Begin with the arrays of an earlier run.

        Args:
          folder: where to save; None saves nothing.
          every: seconds between saves.
          tensors: what was loaded: the arrays by kind, number of the start and name, as in
            "finished/3/W". The spectral vectors have the kind "vectors".
        """
        self._folder, self._every = folder, every
        parts: dict[str, dict[int, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
        for place, array in tensors.items():
            kind, number, name = place.split("/")
            parts[kind][int(number)][name] = array
        self.vectors: np.ndarray | None = parts[_VECTORS][0].get(_VECTORS)
        self.finished = {n: _from_tensors(Solution, part) for n, part in parts["finished"].items()}
        self.under_way = {n: _from_tensors(State, part) for n, part in parts["under_way"].items()}
        begun = [*self.finished.values(), *self.under_way.values()]
        self.resumed_at = sum(int(one.num_steps) for one in begun) if begun else None
        # The rows of W on the disk. The run may keep W of its best start only.
        self._rows = {number: len(solution.W) for number, solution in self.finished.items()}
        self._unsaved_vectors: np.ndarray | None = None
        self._failing = False
        self._saved_at = time.monotonic()

    def due(self) -> bool:
        """Return whether it is time to save again."""
        return self._folder is not None and time.monotonic() - self._saved_at >= self._every

    def save(self, finished: Mapping[int, Solution], under_way: Mapping[int, State]) -> None:
        """Save what is new. If the disk refuses, warn and leave what was saved before.

        Args:
          finished: all solutions so far.
          under_way: states of starts that have not finished, of all or of some.
        """
        if self._folder is None:
            return
        try:
            if self._unsaved_vectors is not None:
                vectors = {_VECTORS: self._unsaved_vectors}
                self._folder.save(_VECTORS, vectors, {}, keep_previous=False)
                self._unsaved_vectors = None
            # The best solution first: the W of others is given up once that of the best is safe.
            for number, solution in sorted(finished.items(), key=lambda item: -len(item[1].W)):
                num_rows = len(solution.W)
                if self._rows.get(number) != num_rows:
                    self._save_start(self._folder, number, solution, "finished", keep_previous=num_rows > 0)
                    self._rows[number] = num_rows
            for number, state in under_way.items():
                self._save_start(self._folder, number, state, "under_way")
            self._failing = False
        except OSError as error:
            if not self._failing:
                warn(
                    f"checkpoint folder {self._folder.path}: could not save there "
                    f"({error.strerror or error}); the run goes on, and tries again later",
                    CheckpointWarning,
                )
            self._failing = True
        if under_way or self._failing:
            self._saved_at = time.monotonic()

    def save_vectors(self, vectors: np.ndarray) -> None:
        """Save the spectral vectors, from which all starts are made. If that fails, try at the next save."""
        self._unsaved_vectors = vectors
        self.save({}, {})

    @staticmethod
    def _save_start(
        folder: CheckpointFolder, number: int, result: Any, kind: str, *, keep_previous: bool = True
    ) -> None:
        info = {"kind": kind, "start": number, "num_steps": int(result.num_steps)}
        folder.save(_name(number), _to_tensors(result), info, keep_previous=keep_previous)


def open_checkpoint(
    folder: CheckpointFolder | None,
    every: float,
    run: Mapping[str, Any],
    environment: Mapping[str, Any],
    expected: Expected,
) -> Checkpoint:
    """Load what the folder holds of a run. The first process loads it and sends it to the others.

    Args:
      folder: the opened folder of the first process, None in the others.
      every: seconds between saves.
      run: as in `CheckpointFolder.load`.
      environment: as in `CheckpointFolder.load`.
      expected: what the run saves.

    Raises:
      CheckpointError: if the folder holds another run.
    """

    def load() -> dict[str, np.ndarray]:
        assert folder is not None
        return {
            f"{part.content.get('kind', _VECTORS)}/{part.content.get('start', 0)}/{name}": array
            for part in folder.load(run, environment, partial(_check, expected)).values()
            for name, array in part.tensors.items()
        }

    tensors = processes.run_on_first(load)
    if processes.count() > 1:
        tensors = processes.broadcast(tensors or {})
    return Checkpoint(folder, every, tensors)


def _check(expected: Expected, part: str, stored: Stored) -> None:
    """Refuse a part of a checkpoint that `Checkpoint.save` would not have written in this run."""
    tensors, info = stored
    if part == _VECTORS and not info:
        _check_arrays(tensors, {_VECTORS: (expected.dtype, (expected.num_words, expected.num_dimensions))})
        return
    kind, number = info.get("kind"), info.get("start")
    if (
        kind not in ("finished", "under_way")
        or type(number) is not int
        or not 0 <= number < len(expected.num_topics)
    ):
        raise ValueError(f"it says it is of the kind {kind!r}, of start {number!r}")
    if part != _name(number):
        raise ValueError(f"it is of start {number}, which its name does not say")
    dtype, W_shape = expected.dtype, (expected.num_words, expected.num_topics[number])
    if kind == "finished" and "W" in tensors and not len(tensors["W"]):
        W_shape = (0, W_shape[1])  # only the best W is kept
    arrays = {
        "W": (dtype, W_shape),
        "objective": (dtype, ()),
        "status": (np.dtype(np.int32), ()),
        "num_steps": (np.dtype(np.int32), ()),
        **{f"history.{name}": (dtype, (expected.max_steps + 1,)) for name in History._fields},
    }
    if kind == "under_way":
        arrays |= {"ZW": (dtype, W_shape), "refused": (np.dtype(bool), ())}
    status = int(tensors["status"]) if "status" in tensors and tensors["status"].size == 1 else None
    # A pass over S that was not finite has left its ZW. No step follows.
    _check_arrays(tensors, arrays, any_number=() if status != Status.NONFINITE else ("ZW",))
    if status not in list(Status) or not 0 <= int(tensors["num_steps"]) <= expected.max_steps:
        raise ValueError(f"it has the status {status} after {tensors['num_steps']} steps")


def _check_arrays(
    tensors: Mapping[str, np.ndarray],
    expected: Mapping[str, tuple[np.dtype, tuple[int, ...]]],
    any_number: Sequence[str] = (),
) -> None:
    """Refuse other names, dtypes or shapes than those expected, and weights that are no weights."""
    if set(tensors) != set(expected):
        raise ValueError(f"it holds the arrays {sorted(tensors)}, not {sorted(expected)}")
    for name, (dtype, shape) in expected.items():
        array = tensors[name]
        if array.dtype != dtype or array.shape != shape:
            raise ValueError(f"its {name} is {array.dtype} {array.shape}, not {dtype} {shape}")
        least = {_VECTORS: -np.inf, "W": 0.0, "ZW": 0.0}.get(name)
        if least is None or name in any_number:
            continue
        # With a NaN, minimum and maximum are NaN.
        if array.size and not (
            np.isfinite(array.min()) and np.isfinite(array.max()) and array.min() >= least
        ):
            raise ValueError(f"its {name} has entries that are negative or not finite")


def _name(number: int) -> str:
    return f"start{number:04d}"


def _to_tensors(result: Any) -> dict[str, np.ndarray]:
    """Return the arrays of a state or a solution, and of its history, by name."""
    own = {name: np.asarray(getattr(result, name)) for name in result._fields if name != "history"}
    return own | {f"history.{name}": np.asarray(array) for name, array in result.history._asdict().items()}


def _from_tensors(kind: type[Result], tensors: Mapping[str, Any]) -> Result:
    own = {name: tensors[name] for name in kind._fields if name != "history"}
    history = {name: tensors[f"history.{name}"] for name in History._fields}
    return kind(**own, history=History(**history))
