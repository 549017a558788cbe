"""S in any of its forms enters; arrays that devices pass over leave: the owner of how S is laid out."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.core import Tracer
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from dcdjax import native, packing, processes, rounds, sharding
from dcdjax.dealing import Deal
from dcdjax.parallel import num_workers
from dcdjax.similarity import Similarity, from_matrix


@dataclass(frozen=True)
class Kind:
    """How a kind of device likes S best.

    Attributes:
      tile_size: rows and columns of a tile. Larger ones make better use of a matrix unit, smaller ones follow
        closer where S is dense.
      cells_per_nonzero: how many cells of a tile take as long as a nonzero in a segment. A cell counts for
        its mirror image too, so a tile pays where more than 1 / (2 cells_per_nonzero) of it are nonzero.
      block_bytes: of the rows of W that are gathered at a time.
    """

    tile_size: int
    cells_per_nonzero: float
    block_bytes: int


# Measured on two cores, r = 200 (experiments/benchmark): a cell of a tile takes 7.5 ns, a nonzero of a
# segment 38 ns in XLA and 16 ns in C; at r = 50 these are 4, 20 and 7. On other cores, whose caches are
# faster: 10.5, 34 and 10; 5, 19 and 4. So 1.5 for C is between 1 and 2.2. Gathered rows should stay in a
# core's own cache.
_KINDS = {
    "xla": Kind(tile_size=256, cells_per_nonzero=5.0, block_bytes=1 << 18),
    "native": Kind(tile_size=256, cells_per_nonzero=1.5, block_bytes=1 << 18),
    # Of GPUs and TPUs, not measured: a matrix unit multiplies by the hundred what a gather can bring, and
    # each operation should be large, because starting one takes as long as a product of 256 x 256.
    "accelerator": Kind(tile_size=1024, cells_per_nonzero=25.0, block_bytes=1 << 26),
}
# Parts for each thread, so that one that began late finds less to do.
_PARTS_PER_THREAD = 4


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Nonzeros:
    """S as it is given to `update`: for what is known only while JAX traces, and as the reference."""

    S_idx: Int[Array, "nonzeros 2"]
    S_val: Float[Array, " nonzeros"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tiles:
    """As `packing.Tiles`, an equal share for each device."""

    rows: Int[Array, "*devices tiles"]
    columns: Int[Array, "*devices tiles"]
    values: Float[Array, "*devices tiles size size"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Segments:
    """As `packing.Segments`, an equal share for each device; where W is split, one for each of its rounds."""

    parts: Int[Array, "*devices_and_rounds parts_and_end"]
    rows: Int[Array, "*devices_and_rounds segments"]
    columns: Int[Array, "*devices_and_rounds segments width"]
    values: Float[Array, "*devices_and_rounds segments width"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Layout:
    """S as the solver takes it, scaled to a mean row sum of one, for the devices that it was prepared for.

    Attributes:
      pieces: which together hold each nonzero of S once, over `scale`.
      scale: the mean row sum of S. No step depends on the scale of S, but the range of float32 does.
      num_words: N.
      mesh: the devices that share the work, or None for a single one.
      kind: of the devices.
      num_threads: of the native kernel on each of them; 0 where XLA computes everything.
      deal: which device has which rows of W, where W is split; None where each device has all of it.
    """

    pieces: tuple[Nonzeros | Tiles | Segments, ...]
    scale: Float[Array, ""]
    num_words: int = field(metadata={"static": True})
    mesh: Mesh | None = field(default=None, metadata={"static": True})
    kind: Kind = field(default=_KINDS["xla"], metadata={"static": True})
    num_threads: int = field(default=0, metadata={"static": True})
    deal: Deal | None = field(default=None, metadata={"static": True})

    @property
    def devices(self) -> list[Any]:
        """On which S lies."""
        return list(self.scale.devices()) if self.mesh is None else list(self.mesh.devices.flat)

    def placed(self, array: Any, axis: int = 0) -> Array:
        """An array with an axis of words, on the devices: as it is; split and in their order, where W is."""
        if self.deal is None:
            return array if isinstance(array, Tracer) else sharding.everywhere(array, self.devices)
        if isinstance(array, Tracer):
            return self.deal.dealt(array, axis)
        assert self.mesh is not None
        return sharding.by_blocks(self.deal.dealt(sharding.on_host(array), axis), self.mesh, axis)

    def collected(self, array: Array, axis: int = 0) -> Array:
        """The inverse; what was split comes back by way of the host, and stays there."""
        if self.deal is None:
            return array
        if isinstance(array, Tracer):
            return self.deal.collected(array, axis)
        return sharding.kept_on_host(self.deal.collected(sharding.on_host(array), axis))

    def beside_starts(self, tree: Any) -> Any:
        """Arrays, such as a key, where starts are made: on the devices; on the host where W is split."""
        if self.deal is None:
            return sharding.everywhere(tree, self.devices)
        return jax.device_put(tree, sharding.host())

    def room(self) -> AbstractContextManager[Any]:
        """Where what is made of W is computed: on the host where W is split, which has the room for it."""
        return nullcontext() if self.deal is None else jax.default_device(sharding.host())

    @property
    def nbytes(self) -> int:
        """On all devices together."""
        return sum(array.nbytes for array in jax.tree.leaves(self.pieces))


def prepare(
    S: Any,
    *,
    num_words: int | None = None,
    dtype: DTypeLike = jnp.float32,
    devices: Sequence[Any] | Mesh | None = None,
    split: bool | None = None,
) -> Layout:
    """Validates S, unless that was done before, and lays it out on devices that will share the work.

    Args:
      S: a `Similarity`, or whatever `similarity.from_matrix` takes: a scipy sparse matrix or a pair
        (S_idx, S_val). Words sorted by frequency are fastest, as those of a corpus are.
      num_words: N, where a pair does not say it by its largest index.
      dtype: of the W that will be solved for.
      devices: some of `jax.devices()`, or a mesh of them; if not given all, of all processes. Of the CPU
        devices of a single process with the native kernel only the first, which uses all cores faster than
        several do.
        Without that kernel, a device for each core is made by
        `jax.config.update("jax_num_cpu_devices", os.cpu_count())` before anything else.
      split: the rows of W too, for a W that does not fit on one device: S is then split by rows, and blocks
        of W go around. If not given, only where the devices are those of several processes, which each load
        their share of S alone. There are no tiles then.

    Returns:
      The layout, to be given to `solve` in place of S as often as needed.
    """
    group = sharding.checked(devices)
    if _is_split(group, split):
        return _dealt(S, group, num_words=num_words, dtype=dtype)
    if devices is None:
        (group,) = _groups(group, 1)
    return _placed(_packed(S, [group], num_words=num_words, dtype=dtype), group)


def for_starts(
    S: Any, num_starts: int, *, dtype: DTypeLike, devices: Sequence[Any], split: bool | None = None
) -> list[Layout]:
    """S once for each device, where there are starts for all of them; otherwise once for all together.

    Devices that have nothing to tell each other are faster, but each needs all of S.
    """
    if _is_split(devices, split):
        return [_dealt(S, devices, num_words=None, dtype=dtype)]
    groups = _groups(devices, num_starts)
    shares = _packed(S, groups, num_words=None, dtype=dtype)
    return [_placed(shares, group) for group in groups]


def _groups(devices: Sequence[Any], num_starts: int) -> list[list[Any]]:
    """Which devices work together on a start, for up to so many starts at the same time."""
    if _is_native(devices):
        devices = devices[:num_starts]  # cores are not bound to devices: the kernel's threads use them all
    return [[device] for device in devices] if num_starts >= len(devices) else [list(devices)]


def _is_split(devices: Sequence[Any], split: bool | None) -> bool:
    """Whether W is to be, of which a single device has all anyway."""
    foreign = len(sharding.own(devices)) < len(devices)
    if foreign and {device.process_index for device in devices} != set(range(processes.number())):
        raise ValueError("devices must be of this process alone, or some of each process")
    if foreign and split is False:
        raise ValueError("split=False, but the devices are those of several processes")
    return foreign or (bool(split) and len(devices) > 1)


def _is_native(devices: Sequence[Any]) -> bool:
    return all(device.platform == "cpu" for device in devices) and native.available()


@dataclass(frozen=True)
class _Packed:
    """S on the host, cut for so many devices of a kind."""

    tiles: list[packing.Tiles]
    segments: list[packing.Segments]
    scale: np.ndarray
    num_words: int
    kind: Kind
    num_threads: int


def _packed(S: Any, groups: list[list[Any]], *, num_words: int | None, dtype: DTypeLike) -> _Packed:
    """S cut into equal shares for the devices of a group; all groups will be at work at the same time."""
    similarity = S if isinstance(S, Similarity) else from_matrix(S, num_words=num_words)
    matrix = similarity.matrix
    if num_words not in (None, matrix.shape[0]):
        raise ValueError(f"S has {matrix.shape[0]} words where {num_words} are expected")
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    scale = scale_of(matrix, dtype)
    devices, num_shares = [device for group in groups for device in group], len(groups[0])
    num_threads = _num_threads(devices)
    name, parts_each = _way(devices, num_threads)
    tiles, segments = packing.pack(
        matrix,
        divisor=scale,
        dtype=np.dtype(dtype),
        tile_size=_KINDS[name].tile_size,
        cells_per_nonzero=_KINDS[name].cells_per_nonzero,
        num_parts=num_shares * parts_each,
    )
    return _Packed(
        tiles=packing.share_tiles(tiles, num_shares),
        segments=packing.share_segments(segments, num_shares),
        scale=np.asarray(scale, dtype),
        num_words=matrix.shape[0],
        kind=_KINDS[name],
        num_threads=num_threads,
    )


@dataclass(frozen=True)
class Way:
    """Devices that will share the work, and into how many parts in all these want S cut."""

    devices: list[Any]
    kind: Kind
    num_threads: int
    num_parts: int


def way(devices: Sequence[Any] | Mesh | None) -> Way:
    """How `prepare` would go about it, for devices that each hold W."""
    group = sharding.checked(devices)
    if len(sharding.own(group)) < len(group):
        raise ValueError("devices must be of this process alone")
    if devices is None:
        (group,) = _groups(group, 1)
    num_threads = _num_threads(group)
    name, parts_each = _way(group, num_threads)
    return Way(devices=group, kind=_KINDS[name], num_threads=num_threads, num_parts=len(group) * parts_each)


def _num_threads(devices: Sequence[Any]) -> int:
    """Of the native kernel on each device, all being at work; 0 without it."""
    return max(1, num_workers() // len(devices)) if _is_native(devices) else 0


def _way(devices: Sequence[Any], num_threads: int) -> tuple[str, int]:
    """The kind of the devices, and into how many parts the threads of each want S cut."""
    on_cpu = all(device.platform == "cpu" for device in devices)
    name = "native" if num_threads else "xla" if on_cpu else "accelerator"
    return name, _PARTS_PER_THREAD * num_threads if num_threads > 1 else 1


def scale_of(matrix: scipy.sparse.csr_array, dtype: DTypeLike) -> float:
    """The mean row sum of S, which is refused where that is beyond the dtype."""
    return _scale(_facts(matrix, 0, 1), matrix.shape[0], jax.dtypes.canonicalize_dtype(dtype))


def _facts(rows: scipy.sparse.csr_array, first: int, step: int) -> np.ndarray:
    """Of some rows of S: its largest entry, its sum over that, the word with the weakest row, its strongest.

    All in float64: what float32 would flush to zero may be large in proportion.
    """
    strongest = np.maximum.reduceat(rows.data, rows.indptr[:-1])
    largest, weakest = float(strongest.max()), int(strongest.argmin())
    with np.errstate(over="ignore"):
        total = float(rows.data.sum()) / largest
    if not np.isfinite(total):  # the sum of the largest numbers that there are
        total = float((rows.data / largest).sum())
    return np.array([largest, total, first + step * weakest, strongest[weakest]])


def _together(facts: np.ndarray) -> np.ndarray:
    """Facts of several shares as those of one."""
    largest = facts[:, 0].max()
    return np.array([largest, (facts[:, 0] / largest * facts[:, 1]).sum(), *facts[facts[:, 3].argmin(), 2:]])


def _scale(facts: np.ndarray, num_words: int, dtype: Any) -> float:
    """The mean row sum of S, of which a word must have enough for the dtype to see."""
    largest, total, word, strongest = _together(np.atleast_2d(facts)).tolist()
    mean, limits = total / num_words, jnp.finfo(dtype)
    scale = largest * mean
    if not float(limits.tiny) <= scale <= float(limits.max):
        raise ValueError(
            f"S has a mean row sum of {scale:.3g}, which {limits.dtype} cannot hold: divide S by it"
        )
    if strongest / largest / mean < 2 * float(limits.tiny):  # of which a tile may keep half
        raise ValueError(
            f"S: all entries of word {int(word)} are below {2 * limits.tiny:.1e} of the mean row "
            f"sum, which {limits.dtype} cannot tell from none"
        )
    return scale


def _dealt(S: Any, devices: Sequence[Any], *, num_words: int | None, dtype: DTypeLike) -> Layout:
    """S split by the rows of W: each process asks for the rows of its own devices alone."""
    if not isinstance(S, Similarity):
        S = from_matrix(S, num_words=num_words)
    if num_words not in (None, S.num_words):
        raise ValueError(f"S has {S.num_words} words where {num_words} are expected")
    if S.num_words < len(devices):
        raise ValueError(f"S has {S.num_words} words, fewer than there are devices, {len(devices)}")
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    deal = Deal(S.num_words, len(devices))
    own = [number for number, device in enumerate(devices) if device in sharding.own(devices)]
    rows = {number: S.rows(number, len(devices)) for number in own}
    facts = np.stack([_facts(share, number, len(devices)) for number, share in rows.items()])
    scale = _scale(processes.exchanged(_together(facts)), S.num_words, dtype)
    # The least that a process has: all of them run the same program.
    num_threads = int(processes.exchanged(np.int64(_num_threads(sharding.own(devices)))).min())
    name, num_parts = _way(devices, num_threads)
    cuts = [
        rounds.cut(
            rows.pop(number), deal, number, divisor=scale, dtype=np.dtype(dtype), num_parts=num_parts,
            width=packing.width_for(S.matrix.nnz / S.num_words / len(devices)),
        )
        for number in own
    ]  # fmt: skip
    most = processes.exchanged(np.int64(max(part.rows.size for cut in cuts for part in cut))).max()
    shares = [rounds.stacked(cuts.pop(0), max(1, int(most))) for _ in own]
    with jax.ensure_compile_time_eval():  # inside of a `jit`, too
        segments = joined(Segments, shares, devices)
        whole = sharding.everywhere(np.asarray(scale, dtype), devices)
    return Layout(
        pieces=(segments,),
        scale=whole,
        num_words=S.num_words,
        mesh=sharding.mesh_of(devices),
        kind=_KINDS[name],
        num_threads=num_threads,
        deal=deal,
    )


def joined(to: Any, shares: list[Any], devices: Sequence[Any]) -> Any:
    """Shares of S, each on its device, as one record of arrays."""
    fields = to.__dataclass_fields__
    return to(
        **{name: sharding.apart([getattr(share, name) for share in shares], devices) for name in fields}
    )


def _placed(packed: _Packed, devices: Sequence[Any]) -> Layout:
    """Puts a share of S onto each device."""
    pieces = []
    with jax.ensure_compile_time_eval():  # inside of a `jit`, too
        if packed.tiles[0].rows.size:
            pieces.append(joined(Tiles, packed.tiles, devices))
        if packed.segments[0].rows.size:
            pieces.append(joined(Segments, packed.segments, devices))
        scale = sharding.everywhere(packed.scale, devices)
    return Layout(
        pieces=tuple(pieces),
        scale=scale,
        num_words=packed.num_words,
        mesh=sharding.mesh_of(devices),
        kind=packed.kind,
        num_threads=packed.num_threads,
    )
