"""The states and solutions of a run enter; they go into its checkpoint, and come back to go on from."""

import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from dcdjax import processes
from dcdjax.checkpoint import CheckpointWarning, Folder
from dcdjax.solver import History, Solution, State

_VECTORS = "vectors"
Record = TypeVar("Record", State, Solution)


class Keeper:
    """Keeps a run in a folder: the state of each start under way, the solution of each that has finished.

    No start knows of another, so each has files of its own, and what is lost of one is lost of no other.

    Attributes:
      finished: the solutions that were found in the folder, by the number of their start.
      under_way: likewise the states of starts that have begun.
      vectors: the spectral vectors, if they were found.
      resumed_at: the steps of all of these, or None if nothing was found.
    """

    def __init__(
        self, folder: Folder, every: float, run: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        """Looks for what there is.

        Args:
          folder: opened.
          every: seconds between saves.
          run: all that the result depends on.
          about: what may change.

        Raises:
          CheckpointError: if the folder is of another run.
        """
        self._folder, self._every = folder, every
        found = folder.find(run, about)
        self.vectors = found.pop(_VECTORS).tensors[_VECTORS] if _VECTORS in found else None
        self.finished: dict[int, Solution] = {}
        self.under_way: dict[int, State] = {}
        for part in found.values():
            number = part.facts["start"]
            if part.facts["finished"]:
                self.finished[number] = _record(Solution, part.tensors)
            else:
                self.under_way[number] = _record(State, part.tensors)
        self.resumed_at = _steps(self.finished, self.under_way)
        # How many rows of W are on the disk: those of the best alone may be kept.
        self._rows = {number: len(solution.W) for number, solution in self.finished.items()}
        self._unsaved_vectors: np.ndarray | None = None
        self._failing = False
        self._saved_at = time.monotonic()

    def due(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() - self._saved_at >= self._every

    def save(self, finished: Mapping[int, Solution], under_way: Mapping[int, State]) -> None:
        """Saves what is new; warns if that is impossible, and leaves what was saved before.

        Args:
          finished: all solutions so far.
          under_way: states of starts that have not finished, of all or of some.
        """
        try:
            if self._unsaved_vectors is not None:
                self._folder.write(_VECTORS, {_VECTORS: self._unsaved_vectors}, {}, alone=True)
                self._unsaved_vectors = None
            # What only the best is kept of is given up after that is safe.
            for number, solution in sorted(finished.items(), key=lambda item: -len(item[1].W)):
                num_rows = len(solution.W)
                if self._rows.get(number) != num_rows:
                    self._write(number, solution, finished=True, alone=not num_rows)
                    self._rows[number] = num_rows
            for number, state in under_way.items():
                self._write(number, state, finished=False, alone=False)
            self._failing = False
        except OSError as error:
            self._warn(error)
        if under_way or self._failing:
            self._saved_at = time.monotonic()

    def save_vectors(self, vectors: np.ndarray) -> None:
        """Saves the spectral vectors, which all starts are made of; if that fails, with what comes next."""
        self._unsaved_vectors = vectors
        self.save({}, {})

    def _write(self, number: int, record: Any, *, finished: bool, alone: bool) -> None:
        facts = {"start": number, "finished": finished, "num_steps": int(record.num_steps)}
        self._folder.write(f"start{number:04d}", _tensors(record), facts, alone=alone)

    def _warn(self, error: OSError) -> None:
        if not self._failing:
            warnings.warn(
                f"checkpoint folder {self._folder.path}: could not save there ({error.strerror or error}); "
                "the run goes on, and tries again later",
                CheckpointWarning,
                stacklevel=_outside(),
            )
        self._failing = True


@dataclass
class Follower:
    """What the keeper of the first process found, for the others, which keep nothing themselves."""

    finished: dict[int, Solution]
    under_way: dict[int, State]
    vectors: np.ndarray | None
    resumed_at: int | None

    def due(self) -> bool:
        """That is for the first process to say."""
        return False

    def save(self, finished: Mapping[int, Solution], under_way: Mapping[int, State]) -> None:
        """The first process does."""

    def save_vectors(self, vectors: np.ndarray) -> None:
        """The first process does."""


def opened(
    folder: Folder | None, every: float, run: Mapping[str, Any], about: Mapping[str, Any]
) -> Keeper | Follower:
    """A keeper; of several processes the first one has it, and tells the others what it found.

    Args:
      folder: opened, of the first process.
      every: as in `Keeper`.
      run: as in `Keeper`.
      about: as in `Keeper`.
    """

    def open_first() -> Keeper:
        assert folder is not None
        return Keeper(folder, every, run, about)

    first = processes.by_first(open_first)
    if processes.number() == 1:
        return first
    told: dict[str, np.ndarray] = {}
    if first is not None:
        told = {} if first.vectors is None else {_VECTORS: first.vectors}
        for kind, found in (("finished", first.finished), ("under_way", first.under_way)):
            for number, record in found.items():
                told |= {f"{kind}/{number}/{name}": tensor for name, tensor in _tensors(record).items()}
    told = processes.from_first(told)
    if first is not None:
        return first
    vectors = told.pop(_VECTORS, None)
    tensors: dict[tuple[str, int], dict[str, np.ndarray]] = defaultdict(dict)
    for place, tensor in told.items():
        kind, number, name = place.split("/")
        tensors[kind, int(number)][name] = tensor
    finished = {n: _record(Solution, found) for (kind, n), found in tensors.items() if kind == "finished"}
    under_way = {n: _record(State, found) for (kind, n), found in tensors.items() if kind == "under_way"}
    return Follower(finished, under_way, vectors, _steps(finished, under_way))


def _outside() -> int:
    """How far up the stack, for a warning, the last function of this package was called."""
    level, last, frame = 0, 0, sys._getframe(1)
    while frame is not None:
        level += 1
        if frame.f_globals.get("__name__", "").startswith("dcdjax."):
            last = level
        frame = frame.f_back
    return last + 1


def _steps(finished: Mapping[int, Solution], under_way: Mapping[int, State]) -> int | None:
    begun = [*finished.values(), *under_way.values()]
    return sum(int(one.num_steps) for one in begun) if begun else None


def _tensors(record: Any) -> dict[str, np.ndarray]:
    """The arrays of a state or a solution, and of its history, by name."""
    own = {name: np.asarray(getattr(record, name)) for name in record._fields if name != "history"}
    return own | {f"history.{name}": np.asarray(array) for name, array in record.history._asdict().items()}


def _record(kind: type[Record], tensors: Mapping[str, Any]) -> Record:
    own = {name: tensors[name] for name in kind._fields if name != "history"}
    history = {name: tensors[f"history.{name}"] for name in History._fields}
    return kind(**own, history=History(**history))
