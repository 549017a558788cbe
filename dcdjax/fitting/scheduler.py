"""Solve from many starts, one start at a time on each layout of S.

The scheduler takes steps in short chunks. Between two chunks it reports progress, saves a checkpoint, or
stops and keeps what was learned. The size of a chunk does not change the result, not even by a bit.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from dcdjax.checkpoints.checkpoint import Checkpoint
from dcdjax.devices import processes, sharding
from dcdjax.devices.layout import Layout
from dcdjax.solvers import full_batch
from dcdjax.solvers.arguments import Step
from dcdjax.solvers.full_batch import State
from dcdjax.solvers.result import Solution, Status
from dcdjax.util.interrupts import hold_signals
from dcdjax.util.progress import Progress, SteadyTotal, expected_steps, expected_total

# Seconds that a chunk of steps should take: short enough for a bar that moves, long enough that the return to
# the host costs nothing. A single step may take longer.
SECONDS_PER_CHUNK = 0.25
# A chunk has at most this many times the steps of the last one: the first steps do not tell the speed well.
MAX_GROWTH = 4
# Seconds between checks whether a chunk is done. Python handles Ctrl-C only while it does not wait in JAX.
_SECONDS_PER_CHECK = 0.002


def solve_all(
    starts: Sequence[Callable[[], Float[Array, "words topics"]]],
    layouts: Sequence[Layout],
    *,
    step: Step,
    tol: float,
    max_steps: int,
    over_relaxation: float,
    only_best: bool = False,
    saver: Checkpoint | None = None,
    progress: Progress | None = None,
) -> list[Solution]:
    """Solve from each start, on all layouts at once.

    Args:
      starts: functions that make the start W. Each is called when a layout is free.
      layouts: S on different devices. Each layout works on one start at a time.
      step: as in `solve`.
      tol: as in `solve`.
      max_steps: as in `solve`.
      over_relaxation: as in `solve`.
      only_best: keep W of the best solution only; W of the others is then empty.
      saver: saves what is computed, and has the solutions and states of an earlier run.
      progress: is told the steps of all starts, how many they will probably be, objective and change.

    Returns:
      A solution for each start, in their order, on the host. After a KeyboardInterrupt, the solutions of the
      starts that have taken a step; those that were not finished have the status INTERRUPTED.

    Raises:
      KeyboardInterrupt: if no start has taken a step.
    """
    solver = {"step": step, "over_relaxation": over_relaxation}
    solutions = dict(saver.finished) if saver is not None else {}
    states = saver.under_way if saver is not None else {}
    left = sorted(set(range(len(starts))) - set(solutions), key=lambda number: (number not in states, number))
    schedule = _Schedule(
        waiting=deque((number, states.get(number, starts[number])) for number in left),
        workers=[Worker(layout, max_steps, tol, solver) for layout in layouts[: len(starts)]],
        solutions=solutions,
        max_steps=max_steps,
        only_best=only_best,
        saver=saver,
        progress=progress,
    )
    schedule.drop_all_but_best()
    several = processes.count() > 1
    with hold_signals(hold=several, deliver=False) as held:
        try:
            _together(lambda: schedule.report(""), schedule, held)
            while schedule.unfinished:
                _together(schedule.advance, schedule, held)
        except KeyboardInterrupt:
            schedule.stop()
            if not solutions:
                raise
    return [solutions[number] for number in sorted(solutions)]


def _together(act: Callable[[], None], schedule: "_Schedule", held: list[int]) -> None:
    """Act on all processes. An interruption of one process stops all of them after the same chunk."""
    if processes.count() == 1:
        return act()
    interrupted = False
    try:
        act()
    except KeyboardInterrupt:  # from `progress`, after the chunk
        interrupted = True
    interrupted, schedule.chunk = processes.any_and_first(interrupted or bool(held), schedule.chunk)
    if interrupted:
        raise KeyboardInterrupt
    return None


@dataclass
class _Schedule:
    """The starts that wait, the workers, and the solutions so far."""

    waiting: deque[tuple[int, Callable[[], Array] | State]]
    workers: list["Worker"]
    solutions: dict[int, Solution]
    max_steps: int
    only_best: bool
    saver: Checkpoint | None
    progress: Progress | None
    chunk: int = 1  # steps
    steady_total: SteadyTotal = field(default_factory=SteadyTotal)

    @property
    def unfinished(self) -> bool:
        return bool(self.waiting) or any(worker.busy for worker in self.workers)

    def advance(self) -> None:
        """Take a chunk of steps on every layout, and choose the size of the next one."""
        idle = [worker for worker in self.workers if not worker.busy][: len(self.waiting)]
        with hold_signals():
            for worker in idle:
                worker.take(*self.waiting.popleft())
            busy = [worker for worker in self.workers if worker.busy]
            began = time.perf_counter()
            # Every device gets its work before the host waits for any of them.
            for worker in busy:
                worker.dispatch(self.chunk)
        for worker in busy:
            worker.wait()
        seconds_per_step = (time.perf_counter() - began) / self.chunk
        if not idle:  # an idle worker has just compiled
            size = int(SECONDS_PER_CHUNK / seconds_per_step)
            self.chunk = max(1, min(MAX_GROWTH * self.chunk, size))
        remark = _remark(busy)
        ended = [worker for worker in busy if worker.ended]
        for worker in ended:
            self.solutions[worker.number] = worker.solution()
            worker.state = None
            self.drop_all_but_best()
        due = self.saver is not None and processes.broadcast_flag(self.saver.due())
        if ended or due:
            self.save(states=due)
        self.report(remark)

    def stop(self) -> None:
        """Save all states, and turn those that have taken a step into solutions."""
        for worker in self.workers:
            worker.wait()  # Python would crash if it ended while a device still works
        self.save(states=True)
        for worker in self.workers:
            if worker.busy and worker.num_steps:
                self.solutions[worker.number] = worker.solution()
        self.drop_all_but_best()

    def save(self, *, states: bool) -> None:
        if self.saver is not None:
            under_way = {
                worker.number: to_host(worker.state, worker.layout)
                for worker in self.workers
                if states and worker.state is not None
            }
            self.saver.save(self.solutions, under_way)

    def report(self, remark: str) -> None:
        if self.progress is not None:
            busy = [worker for worker in self.workers if worker.busy]
            taken = [int(solution.num_steps) for solution in self.solutions.values()]
            waiting = [int(one.num_steps) if isinstance(one, State) else 0 for _, one in self.waiting]
            done = sum(taken) + sum(worker.num_steps for worker in busy) + sum(waiting)
            total = expected_total(
                taken,
                [expected_steps(worker.changes, worker.tol, self.max_steps) for worker in busy],
                waiting,
                self.workers[0].tol,
                self.max_steps,
            )
            total = None if total is None else self.steady_total(done, max(total, done))
            self.progress("solving", done, total, "steps", remark)

    def drop_all_but_best(self) -> None:
        """Drop W of all solutions but the best, if only the best is wanted."""
        if not self.only_best or not self.solutions:
            return

        def rank(number: int) -> tuple[bool, float, int]:
            solution = self.solutions[number]
            failed = int(solution.status) == Status.NONFINITE or not np.isfinite(float(solution.objective))
            return failed, float(solution.objective), number  # the first of equals

        # An earlier run may have kept W of the best only, or not even that.
        having_W = [number for number, one in self.solutions.items() if len(one.W)]
        best = min(having_W or self.solutions, key=rank)
        for number, solution in self.solutions.items():
            if number != best:
                self.solutions[number] = solution._replace(W=solution.W[:0])


@dataclass
class Worker:
    """Take the steps of one start at a time on one layout."""

    layout: Layout
    max_steps: int
    tol: float
    solver: dict[str, Any]  # static options, compiled for
    number: int = -1
    state: State | None = None
    next_state: State | None = None  # being computed
    num_steps: int = 0
    status: int = 0
    objective: float = np.nan
    changes: np.ndarray = field(default_factory=lambda: np.zeros(0))  # of W, in each step so far

    @property
    def busy(self) -> bool:
        """Return whether the worker has a start."""
        return self.state is not None

    @property
    def ended(self) -> bool:
        """Return whether the solver has stopped."""
        return self.status != Status.RUNNING or self.num_steps >= self.max_steps

    def take(self, number: int, start: Callable[[], Array] | State) -> None:
        """Begin with a start, or continue from the state of an earlier run."""
        self.number, self.num_steps, self.objective, self.changes = number, 0, np.nan, np.zeros(0)
        if isinstance(start, State):
            self.num_steps, self.state = int(start.num_steps), to_devices(start, self.layout)
            self.changes = np.asarray(start.history.change)[1 : self.num_steps + 1]
        else:
            W = self.layout.to_devices(start())
            self.state = full_batch.begin(W, self.layout, max_steps=self.max_steps, **self.solver)

    def dispatch(self, num_steps: int) -> None:
        """Start the next steps on the device without waiting for them."""
        assert self.state is not None
        until = min(self.num_steps + num_steps, self.max_steps)
        limits = {"until": until, "tol": self.tol}
        self.next_state = full_batch.advance(self.state, self.layout, **limits, **self.solver)

    def wait(self) -> None:
        """Wait for the device and take over its new state."""
        state: Any = self.state if self.next_state is None else self.next_state
        while state is not None and not state.num_steps.is_ready():
            time.sleep(_SECONDS_PER_CHECK)
        if self.next_state is not None:
            new = self.next_state
            seen = (new.num_steps, new.status, new.objective, self.layout.scale, new.history.change)
            num_steps, status, objective, scale, change = sharding.fetch(seen)
            self.num_steps, self.status = int(num_steps), int(status)
            self.changes = change[1 : self.num_steps + 1]
            self.objective = float(objective * scale)
            self.state, self.next_state = new, None

    def solution(self) -> Solution:
        """Return the solution so far, on the host."""
        assert self.state is not None
        solution = full_batch.finish(self.state, self.layout, step=self.solver["step"])
        solution = sharding.fetch(solution._replace(W=self.layout.from_devices(solution.W)))
        if self.ended:
            return solution
        return solution._replace(status=np.int32(Status.INTERRUPTED.value))


def to_host(state: State, layout: Layout) -> State:
    """Bring a state to the host. Its rows are words, whatever the devices were."""
    rows = {name: layout.from_devices(getattr(state, name)) for name in ("W", "ZW")}
    return sharding.fetch(state._replace(**rows))


def to_devices(state: State, layout: Layout) -> State:
    """Put a state from `to_host` on the devices of a layout."""
    rows = {name: layout.to_devices(getattr(state, name)) for name in ("W", "ZW")}
    rest = sharding.replicate(state._replace(W=None, ZW=None), layout.devices)
    return rest._replace(**rows)


def _remark(workers: Sequence[Worker]) -> str:
    objective = min(worker.objective for worker in workers)
    change = max((float(worker.changes[-1]) for worker in workers if worker.changes.size), default=np.nan)
    return f"objective {objective:.4g}, change {change:.1g}"
