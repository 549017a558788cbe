"""Check the arguments of solvers, and lay S out on devices."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from dcdjax.devices import sharding
from dcdjax.devices.layout import Layout, Nonzeros
from dcdjax.devices.preparation import prepare
from dcdjax.method import decomposition, priors
from dcdjax.method.priors import Prior
from dcdjax.solvers.result import Solution
from dcdjax.util import checks

Step = Literal["exact", "relaxed"]


def checked_options(step: Step, tol: ArrayLike, max_steps: int, over_relaxation: float) -> dict[str, Any]:
    """Check the options of a solver, and return those that are static in a `jit`."""
    checks.choice("step", step, get_args(Step))
    if np.ndim(tol) != 0:
        raise ValueError(f"tol must be one number, got shape {np.shape(tol)}")
    if not isinstance(tol, Tracer) and not np.asarray(tol) >= 0:
        raise ValueError(f"tol must be nonnegative, got {tol}")
    max_steps = checks.whole("max_steps", max_steps, 0)
    if not 1 <= over_relaxation < 2:
        raise ValueError(f"over_relaxation must be at least 1 and below 2, got {over_relaxation}")
    return {"step": step, "max_steps": max_steps, "over_relaxation": float(over_relaxation)}


def checked_prior(
    concentration: ArrayLike | Sequence[float], relevance: ArrayLike, step: Step, dtype: Any
) -> Prior:
    """Check the parameters of the priors, and that the steps can use them."""
    prior = priors.checked(concentration, relevance, dtype)
    if step != "exact" and any(part is not None for part in prior):
        name = "relevance" if prior.concentration is None else "concentration"
        raise ValueError(f"{name} needs step='exact', got {step!r}")
    return prior


def checked_start(W: ArrayLike, name: str, *, batched: bool, on_host: bool = False) -> Any:
    """Check a start on the host. If it is traced, check its shape alone.

    Args:
      W: the start.
      name: what error messages call it.
      batched: whether there is a leading axis of restarts.
      on_host: leave a NumPy array where it is, because it may be too large for a device.
    """
    start: Any
    if on_host and not isinstance(W, jax.Array):
        start = np.asarray(W)
        start = start.astype(jax.dtypes.canonicalize_dtype(start.dtype), copy=False)
    else:
        start = jnp.asarray(W)
    if start.dtype not in (jnp.float32, jnp.float64):
        raise ValueError(f"{name} must be float32 or float64, got {start.dtype}")
    if start.ndim != 2 + batched or min(start.shape) < 1:
        shape = "(restarts, words, topics)" if batched else "(words, topics)"
        raise ValueError(f"{name} must be {shape} with at least one of each, got shape {start.shape}")
    if not isinstance(start, Tracer):
        bad = np.argwhere(~(np.isfinite(start) & (np.asarray(start) > 0)))
        if bad.size:
            at = tuple(int(n) for n in bad[0])
            raise ValueError(
                f"{name}{list(at)} = {start[at]} is not a finite, positive number ({len(bad)} in total)"
            )
    return start


def checked_problem(
    W: ArrayLike, S: Any, devices: Any, split: bool | None, *, batched: bool
) -> tuple[Array, Layout]:
    """Check a start, and lay S out on devices."""
    name = "W_batch" if batched else "W"
    if isinstance(S, Layout) and not (devices is None and split is None):
        raise ValueError(
            f"{'split' if devices is None else 'devices'}: S is a layout, which already has its own"
        )
    on_host = S.row_split is not None if isinstance(S, Layout) else split or jax.process_count() > 1
    start = checked_start(W, name, batched=batched, on_host=bool(on_host))
    num_words = start.shape[-2]
    if isinstance(S, Layout):
        layout = S
    elif isinstance(S, tuple | list) and len(S) == 2 and any(isinstance(part, Tracer) for part in S):
        S_idx, S_val = (jnp.asarray(part) for part in S)
        decomposition.check_shapes(start[0] if batched else start, S_idx, S_val)
        S_val, scale = decomposition.normalize(S_val.astype(start.dtype), num_words)
        layout = Layout(pieces=(Nonzeros(S_idx=S_idx, S_val=S_val),), scale=scale, num_words=num_words)
    else:
        # While JAX traces, the devices of W are not known.
        if isinstance(start, Tracer) and devices is None:
            devices = jax.local_devices()[:1]
        layout = prepare(S, num_words=num_words, dtype=start.dtype, devices=devices, split=split)
    check_match(name, start, layout, made="prepared")
    return start, layout


def check_match(name: str, W: Array, S: Layout, *, made: str) -> None:
    """Raise ValueError unless W has the words and the dtype that S was made for."""
    if S.num_words != W.shape[-2]:
        raise ValueError(f"{name} has {W.shape[-2]} words, but S has {S.num_words}")
    if S.scale.dtype != W.dtype:
        raise ValueError(f"{name} is {W.dtype}, but S was {made} for {S.scale.dtype}")


def as_scalar(number: ArrayLike, W: Array) -> Float[Array, ""]:
    """Return a number in the dtype of W, made on the host, so that it is bound to no device."""
    return jnp.asarray(number if isinstance(number, Tracer) else np.asarray(number), W.dtype)


def move_to_start(solution: Solution, W: Any, S: Layout) -> Solution:
    """Move a solution from the devices of S to the device of the start, if the start was on one device."""
    if (
        isinstance(solution.W, Tracer)
        or not isinstance(W, jax.Array)
        or len(W.devices()) > 1
        or W.devices() == set(S.devices)
    ):
        return solution
    (device,) = W.devices()
    return sharding.replicate(solution, [device])
