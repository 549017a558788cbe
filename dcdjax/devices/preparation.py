"""Check S, cut it into tiles and segments, and put them on the devices that share the work."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.typing import DTypeLike

from dcdjax.devices import native, packing, processes, row_split, sharding
from dcdjax.devices.layout import DEVICE_KINDS, DeviceKind, Layout
from dcdjax.devices.row_split import RowSplit
from dcdjax.similarity.similarity import Similarity, from_matrix
from dcdjax.util.parallel import num_workers

# Several parts for each thread: a thread that started late then takes fewer of them.
_PARTS_PER_THREAD = 4


def prepare(
    S: Any,
    *,
    num_words: int | None = None,
    dtype: DTypeLike = jnp.float32,
    devices: sharding.Devices = None,
    split: bool | None = None,
) -> Layout:
    """Check S, unless it is a `Similarity`, and lay it out on the devices that will share the work.

    If the devices belong to several processes, each process keeps the rows of S of its own devices in memory,
    and copies only these from a memory-mapped file. But each process reads the whole file:
    `similarity.load` to verify its checksum, and `fit` to compute the hash of S.

    Args:
      S: a `Similarity`, or anything that `similarity.from_matrix` takes: a scipy sparse matrix or a pair
        (S_idx, S_val). It is fastest if words are sorted by frequency, as those of a corpus are.
      num_words: N, if the largest index of a pair does not show it.
      dtype: dtype of the W to solve for.
      devices: some of `jax.devices()`, or a mesh of them. The default is all devices of all processes, with
        one exception: a single process with CPU devices and the native kernel uses its first device only,
        because the kernel's threads use all cores faster than several devices do. Without the native kernel,
        make one device per core with `jax.config.update("jax_num_cpu_devices", os.cpu_count())` before JAX is
        used.
      split: True splits the rows of W over the devices too, for a W that does not fit on one device. S is
        then split by rows and has no tiles, and blocks of W travel around the devices. False keeps all of W
        on every device, which is faster. The default splits W only if the devices belong to several
        processes.

    Returns:
      The layout. Pass it to `solve` in place of S as often as needed.
    """
    group = sharding.checked_devices(devices)
    is_split = _is_split(group, split)
    similarity = checked_similarity(S, num_words)
    if is_split:
        return _prepare_split(similarity, group, dtype)
    (layout,) = _prepare_copies(similarity, _device_groups(group, 1) if devices is None else [group], dtype)
    return layout


def prepare_for_starts(
    S: Similarity, num_starts: int, *, dtype: DTypeLike, devices: Sequence[Any], split: bool | None = None
) -> list[Layout]:
    """Lay S out once for each device if there are enough starts, otherwise once for all devices together.

    Devices that do not communicate are faster, but each of them needs memory for all of S.
    """
    groups, is_split = groups_for_starts(num_starts, devices=devices, split=split)
    if is_split:
        return [_prepare_split(S, groups[0], dtype)]
    return _prepare_copies(S, groups, dtype)


def groups_for_starts(
    num_starts: int, *, devices: Sequence[Any], split: bool | None = None
) -> tuple[list[list[Any]], bool]:
    """Return the groups of devices that `prepare_for_starts` makes, and whether a group splits W."""
    is_split = _is_split(devices, split)
    return [list(devices)] if is_split else _device_groups(devices, num_starts), is_split


@dataclass(frozen=True)
class WorkPlan:
    """State which devices share the work, and into how many parts they want S cut."""

    devices: list[Any]
    kind: DeviceKind
    num_threads: int
    parts_per_device: int


def plan_work(devices: sharding.Devices) -> WorkPlan:
    """Return the devices and settings that `prepare` would use if each device holds all of W."""
    group = sharding.checked_devices(devices)
    if len(sharding.local_devices(group)) < len(group):
        raise ValueError("devices must be of this process alone")
    if devices is None:
        (group,) = _device_groups(group, 1)
    return _plan(group, _num_threads(group))


def mean_row_sum(matrix: scipy.sparse.csr_array, dtype: DTypeLike) -> float:
    """Return the mean row sum of S. Raise ValueError if the dtype cannot hold it."""
    return _checked_scale(_row_statistics(matrix, 0, 1), matrix.shape[0], dtype)


# --- Devices ------------------------------------------------------------------------------------------


def _device_groups(devices: Sequence[Any], num_starts: int) -> list[list[Any]]:
    """Return the groups of devices that work at the same time, each group on one start."""
    if _is_native(devices):
        devices = devices[:num_starts]  # cores are not bound to devices: the kernel's threads use them all
    return [[device] for device in devices] if num_starts >= len(devices) else [list(devices)]


def _is_split(devices: Sequence[Any], split: bool | None) -> bool:
    """Decide whether to split W. A single device holds all of it anyway."""
    has_foreign = len(sharding.local_devices(devices)) < len(devices)
    if has_foreign and {device.process_index for device in devices} != set(range(processes.count())):
        raise ValueError("devices must be of this process alone, or some of each process")
    if has_foreign and split is False:
        raise ValueError("split=False, but the devices are those of several processes")
    return has_foreign or (bool(split) and len(devices) > 1)


def _is_native(devices: Sequence[Any]) -> bool:
    return all(device.platform == "cpu" for device in devices) and native.available()


def _num_threads(devices: Sequence[Any]) -> int:
    """Return the threads of the native kernel on each device while all devices work; 0 without the kernel."""
    return max(1, num_workers() // len(devices)) if _is_native(devices) else 0


def _plan(devices: Sequence[Any], num_threads: int) -> WorkPlan:
    on_cpu = all(device.platform == "cpu" for device in devices)
    name = "native" if num_threads else "xla" if on_cpu else "accelerator"
    return WorkPlan(
        devices=list(devices),
        kind=DEVICE_KINDS[name],
        num_threads=num_threads,
        parts_per_device=_PARTS_PER_THREAD * num_threads if num_threads > 1 else 1,
    )


# --- S ------------------------------------------------------------------------------------------------


def checked_similarity(S: Any, num_words: int | None) -> Similarity:
    """Check S, unless it is a `Similarity`, and its number of words."""
    similarity = S if isinstance(S, Similarity) else from_matrix(S, num_words=num_words)
    if num_words not in (None, similarity.num_words):
        raise ValueError(f"S has {similarity.num_words} words where {num_words} are expected")
    return similarity


def _prepare_copies(S: Similarity, groups: list[list[Any]], dtype: DTypeLike) -> list[Layout]:
    """Cut S once, and put a copy on each group of devices. All groups will work at the same time."""
    matrix, dtype = S.matrix, jax.dtypes.canonicalize_dtype(dtype)
    scale = mean_row_sum(matrix, dtype)
    devices, num_shares = [device for group in groups for device in group], len(groups[0])
    plan = _plan(devices, _num_threads(devices))
    tiles, segments = packing.pack(
        matrix,
        divisor=scale,
        dtype=np.dtype(dtype),
        tile_size=plan.kind.tile_size,
        cells_per_nonzero=plan.kind.cells_per_nonzero,
        num_parts=num_shares * plan.parts_per_device,
    )
    of_both = (packing.share_tiles(tiles, num_shares), packing.share_segments(segments, num_shares))
    pieces = [shares for shares in of_both if shares[0].rows.size]
    scale = np.asarray(scale, dtype)
    plans = [replace(plan, devices=group) for group in groups]
    return [lay_out(pieces, scale, plan, num_words=matrix.shape[0]) for plan in plans]


def _prepare_split(S: Similarity, devices: Sequence[Any], dtype: DTypeLike) -> Layout:
    """Split S by the rows of W. Each process takes the rows of its own devices from S, and no others."""
    if S.num_words < len(devices):
        raise ValueError(f"S has {S.num_words} words, fewer than there are devices, {len(devices)}")
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    split = RowSplit(S.num_words, len(devices))
    local = sharding.local_devices(devices)
    own = [number for number, device in enumerate(devices) if device in local]
    # If the matrix is mapped from a file, only these rows are copied.
    rows = {number: S.matrix[number :: len(devices)] for number in own}
    statistics = np.stack([_row_statistics(share, number, len(devices)) for number, share in rows.items()])
    scale = _checked_scale(processes.allgather(_combine_statistics(statistics)), S.num_words, dtype)
    # All processes run the same program, so all use the smallest number of threads.
    plan = _plan(devices, int(processes.allgather(np.int64(_num_threads(local))).min()))
    cut_rounds = partial(
        row_split.cut_rounds, split=split, divisor=scale, dtype=np.dtype(dtype),
        num_parts=plan.parts_per_device,
        width=packing.width_for(S.matrix.nnz / S.num_words / len(devices)),
    )  # fmt: skip
    rounds = [cut_rounds(rows.pop(number), device=number) for number in own]
    most = processes.allgather(np.int64(max(one.rows.size for device in rounds for one in device))).max()
    shares = [packing.stack_segments(rounds.pop(0), max(1, int(most))) for _ in own]
    scale = np.asarray(scale, dtype)
    return lay_out([shares], scale, plan, num_words=S.num_words, row_split=split)


def lay_out(
    pieces: list[list[Any]],
    scale: np.ndarray,
    plan: WorkPlan,
    *,
    num_words: int,
    row_split: RowSplit | None = None,
) -> Layout:
    """Check the shares of each piece, and put them and the scale on their devices."""
    devices = plan.devices
    num_rows = num_words if row_split is None else row_split.rows_per_device
    for share in itertools.chain.from_iterable(pieces):
        packing.check_indices(share, num_rows)
    with jax.ensure_compile_time_eval():  # so that this also works inside a `jit`
        return Layout(
            pieces=tuple(sharding.stack_shares(shares, devices) for shares in pieces),
            scale=sharding.replicate(scale, devices),
            mesh=sharding.make_mesh(devices),
            kind=plan.kind,
            num_threads=plan.num_threads,
            num_words=num_words,
            row_split=row_split,
        )


def _row_statistics(rows: scipy.sparse.csr_array, first: int, step: int) -> np.ndarray:
    """Summarize some rows of S for `_checked_scale`.

    Return the largest entry, the sum over the largest entry, the weakest word, and its strongest entry. The
    weakest word is the one whose strongest entry is smallest. All numbers are float64, because an entry that
    float32 flushes to zero may still be large in proportion.
    """
    strongest = np.maximum.reduceat(rows.data, rows.indptr[:-1])
    largest, weakest = float(strongest.max()), int(strongest.argmin())
    with np.errstate(over="ignore"):
        total = float(rows.data.sum()) / largest
    if not np.isfinite(total):  # the sum overflowed
        total = float((rows.data / largest).sum())
    return np.array([largest, total, first + step * weakest, strongest[weakest]])


def _combine_statistics(several: np.ndarray) -> np.ndarray:
    """Combine several results of `_row_statistics`, one a row, into the statistics of all their rows."""
    largest = several[:, 0].max()
    total = (several[:, 0] / largest * several[:, 1]).sum()
    return np.array([largest, total, *several[several[:, 3].argmin(), 2:]])


def _checked_scale(statistics: np.ndarray, num_words: int, dtype: DTypeLike) -> float:
    """Return the mean row sum of S. Raise ValueError if the dtype cannot hold S divided by it."""
    largest, total, word, strongest = _combine_statistics(np.atleast_2d(statistics)).tolist()
    mean, limits = total / num_words, jnp.finfo(jax.dtypes.canonicalize_dtype(dtype))
    scale = largest * mean
    if not float(limits.tiny) <= scale <= float(limits.max):
        raise ValueError(
            f"S has a mean row sum of {scale:.3g}, which {limits.dtype} cannot hold: divide S by it"
        )
    if strongest / largest / mean < 2 * float(limits.tiny):  # a tile on the diagonal holds half of an entry
        raise ValueError(
            f"S: all entries of word {int(word)} are below {2 * limits.tiny:.1e} of the mean row "
            f"sum, which {limits.dtype} cannot tell from none"
        )
    return scale
