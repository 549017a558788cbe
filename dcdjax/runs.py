"""Starts and layouts of S enter; solutions leave, one start at a time on each layout, told as it goes.

Steps are taken in short chunks by `solver.advance`, so that whoever waits can see how far it has come, and
can stop and keep what was learned. However the steps are cut, each result is to the bit that of `solve`.
"""

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Float

from dcdjax import processes, sharding, solver
from dcdjax.layout import Layout
from dcdjax.parallel import Progress
from dcdjax.solver import Solution, State, Status

# How long a chunk of steps should take: short enough for a bar that moves, long enough that coming back to
# the host costs nothing. A single step may take longer.
_SECONDS_PER_CHUNK = 0.25
# A chunk is no more than so many times as long as the last: the first steps do not tell the speed well.
_GROWTH = 4
# Between looks whether a chunk is done. Python hears of Ctrl-C only while it is not waiting in JAX.
_SECONDS_PER_LOOK = 0.002

_STATIC = ("step", "over_relaxation")
_begin = jax.jit(solver.begin, static_argnames=(*_STATIC, "max_steps"))
_advance = jax.jit(solver.advance, static_argnames=_STATIC)
_finish = jax.jit(solver.finish, static_argnames="step")


@runtime_checkable
class Keeper(Protocol):
    """Keeps what was computed for a run that goes on later; see `keeper.Keeper`."""

    @property
    def finished(self) -> Mapping[int, Solution]:
        """Solutions of an earlier run, by the number of their start."""
        ...

    @property
    def under_way(self) -> Mapping[int, State]:
        """States of an earlier run, as `on_host` makes them."""
        ...

    def due(self) -> bool:
        """Whether states should be kept now."""
        ...

    def save(self, finished: Mapping[int, Solution], under_way: Mapping[int, State]) -> None:
        """Keeps all solutions so far, and the states that are given."""


def solve_all(
    starts: Sequence[Callable[[], Float[Array, "words topics"]]],
    layouts: Sequence[Layout],
    *,
    step: solver.Step,
    tol: float,
    max_steps: int,
    over_relaxation: float,
    only_best: bool = False,
    keeper: Keeper | None = None,
    progress: Progress | None = None,
) -> list[Solution]:
    """Solves from each start, on as many layouts at once as there are.

    Args:
      starts: functions that make what `solve` takes, called when it is needed.
      layouts: of S, on different devices: each works on one start at a time.
      step: as in `solve`.
      tol: as in `solve`.
      max_steps: as in `solve`.
      over_relaxation: as in `solve`.
      only_best: keep the W of the best alone; that of the others is then empty.
      keeper: that what is computed is given to, and what it has of an earlier run is taken from.
      progress: told the steps of all starts together and how many there are at most, objective and change.

    Returns:
      A solution for each start, in their order, on the host. After a KeyboardInterrupt those of the starts
      that have taken a step, with the status INTERRUPTED where it came before their end.

    Raises:
      KeyboardInterrupt: if no start has taken a step.
    """
    kind = {"step": step, "over_relaxation": over_relaxation}
    solutions = dict(keeper.finished) if keeper is not None else {}
    begun = keeper.under_way if keeper is not None else {}
    left = sorted(set(range(len(starts))) - set(solutions), key=lambda number: (number not in begun, number))
    waiting = deque((number, begun.get(number, starts[number])) for number in left)
    lanes = [_Lane(layout, max_steps, tol, kind) for layout in layouts[: len(starts)]]
    chunk = 1
    if only_best and solutions:
        _forget(solutions)

    def report(remark: str) -> None:
        if progress is not None:
            busy = [lane for lane in lanes if lane.busy]
            taken = sum(int(solution.num_steps) for solution in solutions.values())
            done = taken + sum(lane.num_steps for lane in busy)
            done += sum(int(start.num_steps) for _, start in waiting if isinstance(start, State))
            most = taken + max_steps * (len(busy) + len(waiting))
            progress("solving", done, most, "steps", remark)

    def keep(*, states: bool) -> None:
        if keeper is not None:
            under_way = {
                lane.number: on_host(lane.state, lane.layout)
                for lane in lanes
                if states and lane.state is not None
            }
            keeper.save(solutions, under_way)

    def advance(chunk: int) -> int:
        """A chunk of steps on every layout; returns how many the next should have."""
        fresh = [lane for lane in lanes if not lane.busy][: len(waiting)]
        with interruption_held():
            for lane in fresh:
                lane.take(*waiting.popleft())
            busy = [lane for lane in lanes if lane.busy]
            began = time.perf_counter()
            # Every device is given its work before any is waited for.
            for lane in busy:
                lane.go(chunk)
        for lane in busy:
            lane.arrive()
        per_step = (time.perf_counter() - began) / chunk
        if not fresh:  # which would have been compiling
            chunk = max(1, min(_GROWTH * chunk, int(_SECONDS_PER_CHUNK / per_step)))
        remark = _remark(busy)
        ended = [lane for lane in busy if lane.ended]
        for lane in ended:
            solutions[lane.number] = lane.solution()
            lane.state = None
            if only_best:
                _forget(solutions)
        due = keeper is not None and processes.first_says(keeper.due())
        if ended or due:
            keep(states=due)
        report(remark)
        return chunk

    def advance_together(chunk: int) -> int:
        """The same on several processes, of which an interruption of one, between chunks, is one of all."""
        heard = False
        try:
            chunk = advance(chunk)
        except KeyboardInterrupt:  # of who is told how far it has come, after the chunk
            heard = True
        interrupted, chunk = processes.together(heard or stop.waits(), chunk)
        if interrupted:
            raise KeyboardInterrupt
        return chunk

    several = processes.number() > 1
    with interruption_held(hold=several, deliver=False) as stop:
        try:
            if not several:
                report("")
            while waiting or any(lane.busy for lane in lanes):
                chunk = advance_together(chunk) if several else advance(chunk)
        except KeyboardInterrupt:
            for lane in lanes:
                lane.arrive()  # Python must not end while a device is still at work: it would crash
            keep(states=True)
            for lane in lanes:
                if lane.busy and lane.num_steps:
                    solutions[lane.number] = lane.solution()
            if not solutions:
                raise
            if only_best:
                _forget(solutions)
    return [solutions[number] for number in sorted(solutions)]


@dataclass
class _Lane:
    """Devices with the start that they work on."""

    layout: Layout
    max_steps: int
    tol: float
    kind: dict[str, Any]  # of the steps, compiled for
    number: int = -1
    state: State | None = None
    ahead: State | None = None  # where the device is going
    num_steps: int = 0
    status: int = 0
    objective: float = np.nan
    change: float = np.nan

    @property
    def busy(self) -> bool:
        return self.state is not None

    @property
    def ended(self) -> bool:
        return self.status != Status.RUNNING or self.num_steps >= self.max_steps

    def take(self, number: int, start: Callable[[], Array] | State) -> None:
        self.number, self.num_steps, self.objective, self.change = number, 0, np.nan, np.nan
        if isinstance(start, State):
            self.num_steps, self.state = int(start.num_steps), on_devices(start, self.layout)
        else:
            W = self.layout.placed(start())
            self.state = _begin(W, self.layout, max_steps=self.max_steps, **self.kind)

    def go(self, num_steps: int) -> None:
        """Sends the device on its way, and does not wait for it."""
        assert self.state is not None
        until = min(self.num_steps + num_steps, self.max_steps)
        self.ahead = _advance(self.state, self.layout, until=until, tol=self.tol, **self.kind)

    def arrive(self) -> None:
        """Waits for the device, and takes over where it has arrived."""
        state: Any = self.state if self.ahead is None else self.ahead
        while state is not None and not state.num_steps.is_ready():
            time.sleep(_SECONDS_PER_LOOK)
        if self.ahead is not None:
            seen = (self.ahead.num_steps, self.ahead.status, self.ahead.objective, self.layout.scale)
            num_steps, status, objective, scale, change = jax.device_get((*seen, self.ahead.history.change))
            self.change = float(change[int(num_steps)])
            self.num_steps, self.status = int(num_steps), int(status)
            self.objective = float(objective * scale)
            self.state, self.ahead = self.ahead, None

    def solution(self) -> Solution:
        assert self.state is not None
        solution = _finish(self.state, self.layout, step=self.kind["step"])
        solution = jax.device_get(solution._replace(W=self.layout.collected(solution.W)))
        if self.ended:
            return solution
        return solution._replace(status=np.int32(Status.INTERRUPTED.value))


def on_host(state: State, layout: Layout) -> State:
    """A state as it is whatever the devices are: its rows are words."""
    rows = {name: layout.collected(getattr(state, name)) for name in ("W", "ZW")}
    return jax.device_get(state._replace(**rows))


def on_devices(state: State, layout: Layout) -> State:
    """What `on_host` made, on the devices of a layout."""
    rows = {name: layout.placed(getattr(state, name)) for name in ("W", "ZW")}
    rest = sharding.everywhere(state._replace(W=None, ZW=None), layout.devices)
    return rest._replace(**rows)


@dataclass(frozen=True)
class _Held:
    """The signals that were heard while they were held."""

    numbers: list[int]

    def waits(self) -> bool:
        return bool(self.numbers)


@contextmanager
def interruption_held(*, hold: bool = True, deliver: bool = True) -> Iterator[_Held]:
    """Lets Ctrl-C wait: interrupted while it compiles, JAX goes on unseen, and crashes when Python ends.

    SIGTERM waits too, where somebody turns it into the same.

    Args:
      hold: False does nothing.
      deliver: what was heard, in the end; otherwise whoever holds it sees to it.
    """
    heard: list[int] = []

    def hear(number: int, _: Any) -> None:
        heard.append(number)

    before: dict[int, Any] = {}
    if hold and threading.current_thread() is threading.main_thread():  # the only one to be interrupted
        if signal.getsignal(signal.SIGINT) is not None:  # None: not Python's to set back
            before[signal.SIGINT] = signal.signal(signal.SIGINT, hear)
        if callable(signal.getsignal(signal.SIGTERM)):
            before[signal.SIGTERM] = signal.signal(signal.SIGTERM, hear)
    try:
        yield _Held(heard)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in heard if deliver else ():
            signal.raise_signal(number)


def _forget(solutions: dict[int, Solution]) -> None:
    def rank(number: int) -> tuple[bool, float, int]:
        solution = solutions[number]
        return _failed(solution), float(solution.objective), number  # of equals the first

    # Of an earlier run only the W of the best may be left, or not even that.
    best = min([number for number, one in solutions.items() if len(one.W)] or solutions, key=rank)
    for number, solution in solutions.items():
        if number != best:
            solutions[number] = solution._replace(W=solution.W[:0])


def _failed(solution: Solution) -> bool:
    return int(solution.status) == Status.NONFINITE or not np.isfinite(float(solution.objective))


def _remark(lanes: Sequence[_Lane]) -> str:
    objective, change = min(lane.objective for lane in lanes), max(lane.change for lane in lanes)
    return f"objective {objective:.4g}, change {change:.1g}"
