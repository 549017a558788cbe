"""Starts and a layout of S enter; solutions leave, one start at a time on each device, told as it goes.

Steps are taken in short chunks by `solver.advance`, so that whoever waits can see how far it has come, and
can stop and keep what was learned. However the steps are cut, each result is to the bit that of `solve`.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from dcdjax import decomposition, solver
from dcdjax.layout import Layout
from dcdjax.parallel import Progress
from dcdjax.solver import Solution, State, Status

# How long a chunk of steps should take: short enough for a bar that moves and for Ctrl-C to be heard at once,
# long enough that coming back to the host costs nothing. A single step may take longer.
_SECONDS_PER_CHUNK = 0.25
# A chunk is no more than so many times as long as the last: the first steps do not tell the speed well.
_GROWTH = 4

_STATIC = ("step", "over_relaxation")
_begin = jax.jit(solver.begin, static_argnames=(*_STATIC, "max_steps"))
_advance = jax.jit(solver.advance, static_argnames=_STATIC)
_finish = jax.jit(solver.finish, static_argnames="step")


class Run(NamedTuple):
    """Where one start arrived.

    Attributes:
      solution: as from `solve`, on the host.
      plus: the plus part of the gradient at its W on the simplex, in the units of S.
    """

    solution: Solution
    plus: np.ndarray


def solve_all(
    starts: Sequence[Float[Array, "words topics"]],
    layout: Layout,
    *,
    step: solver.Step,
    tol: float,
    max_steps: int,
    over_relaxation: float,
    devices: Sequence[Any],
    progress: Progress | None = None,
) -> list[Run]:
    """Solves from each start, on as many devices at once as there are.

    Args:
      starts: such as `solve` takes.
      layout: of S.
      step: as in `solve`.
      tol: as in `solve`.
      max_steps: as in `solve`.
      over_relaxation: as in `solve`.
      devices: each works on one start at a time.
      progress: told the steps of all starts together and how many there are at most, objective and change.

    Returns:
      A run for each start, in their order. After a KeyboardInterrupt those that have taken a step, with the
      status INTERRUPTED where it came before their end.

    Raises:
      KeyboardInterrupt: if no start has taken a step.
    """
    solve = _Solve(step=step, tol=tol, max_steps=max_steps, over_relaxation=over_relaxation)
    waiting = deque(enumerate(starts))
    lanes = [_Lane(solve, jax.device_put(layout, device), device) for device in devices[: len(starts)]]
    runs: dict[int, Run] = {}
    chunk = 1

    def report(remark: str) -> None:
        if progress is not None:
            busy = [lane for lane in lanes if lane.busy]
            taken = sum(int(run.solution.num_steps) for run in runs.values())
            done = taken + sum(lane.num_steps for lane in busy)
            most = taken + max_steps * (len(busy) + len(waiting))
            progress("solving", done, most, "steps", remark)

    try:
        report("")
        while waiting or any(lane.busy for lane in lanes):
            fresh = [lane for lane in lanes if not lane.busy][: len(waiting)]
            for lane in fresh:
                lane.take(*waiting.popleft())
            busy = [lane for lane in lanes if lane.busy]
            began = time.perf_counter()
            # Every device is given its work before any is waited for.
            for lane, state in [(lane, lane.ahead(chunk)) for lane in busy]:
                lane.arrive(state)
            per_step = (time.perf_counter() - began) / chunk
            if not fresh:  # which would have been compiling
                chunk = max(1, min(_GROWTH * chunk, int(_SECONDS_PER_CHUNK / per_step)))
            remark = _remark(busy)
            for lane in busy:
                if lane.ended:
                    runs[lane.number] = lane.run()
                    lane.state = None
            report(remark)
    except KeyboardInterrupt:
        for lane in lanes:
            if lane.busy and lane.num_steps:
                runs[lane.number] = lane.run()
        if not runs:
            raise
    return [runs[number] for number in sorted(runs)]


@dataclass(frozen=True)
class _Solve:
    step: solver.Step
    tol: float
    max_steps: int
    over_relaxation: float

    @property
    def kind(self) -> dict[str, Any]:
        return {"step": self.step, "over_relaxation": self.over_relaxation}


@dataclass
class _Lane:
    """A device with the start that it works on."""

    solve: _Solve
    layout: Layout
    device: Any
    number: int = -1
    state: State | None = None
    num_steps: int = 0
    status: int = 0
    objective: float = np.nan
    change: float = np.nan

    @property
    def busy(self) -> bool:
        return self.state is not None

    @property
    def ended(self) -> bool:
        return self.status != Status.RUNNING or self.num_steps >= self.solve.max_steps

    def take(self, number: int, start: Array) -> None:
        start = jax.device_put(start, self.device)
        self.state = _begin(start, self.layout, max_steps=self.solve.max_steps, **self.solve.kind)
        self.number, self.num_steps, self.objective, self.change = number, 0, np.nan, np.nan

    def ahead(self, num_steps: int) -> State:
        until = min(self.num_steps + num_steps, self.solve.max_steps)
        assert self.state is not None
        return _advance(self.state, self.layout, until=until, tol=self.solve.tol, **self.solve.kind)

    def arrive(self, state: State) -> None:
        seen = jax.device_get((state.num_steps, state.status, state.objective, self.layout.scale))
        change = float(state.history.change[int(seen[0])])
        self.state, self.change = state, change
        self.num_steps, self.status, self.objective = int(seen[0]), int(seen[1]), float(seen[2] * seen[3])

    def run(self) -> Run:
        assert self.state is not None
        solution = jax.device_get(_finish(self.state, self.layout, step=self.solve.step))
        if not self.ended:
            solution = solution._replace(status=np.int32(Status.INTERRUPTED.value))
        plus = jax.device_get(_plus(self.state, self.layout, **self.solve.kind))
        return Run(solution, plus)


@partial(jax.jit, static_argnames=_STATIC)
def _plus(state: State, layout: Layout, step: solver.Step, over_relaxation: float) -> Float[Array, " topics"]:
    W, ZW = state.W, state.ZW
    if step == "relaxed" and over_relaxation == 1:  # else it is on the simplex already
        W = decomposition.on_simplex(W)
        ZW = decomposition.sweep(W, layout.S_idx, layout.S_val).ZW
    return layout.scale * decomposition.gradient(W, ZW).plus[0]


def _remark(lanes: Sequence[_Lane]) -> str:
    objective, change = min(lane.objective for lane in lanes), max(lane.change for lane in lanes)
    return f"objective {objective:.4g}, change {change:.1g}"
