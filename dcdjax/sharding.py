"""Devices enter; a mesh of them, and functions that share their work among it, leave.

S is split. W, and what is computed from it, is the same on every device; or split by rows too, and then
blocks of rows go around from device to device. A mesh of None is a single device. Devices may be those of
several processes: each of these puts on its own ones what lies there.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

_AXIS = "devices"
_EVERYWHERE = PartitionSpec()
# Bytes that are gathered from all processes at a time.
_PIECE = 1 << 26


def checked(devices: Any) -> list[Any]:
    """The devices that were asked for, or those of a mesh; all, of all processes, for None."""
    if devices is None:
        devices = jax.devices()
    elif isinstance(devices, Mesh):
        devices = devices.devices.flat
    devices = list(devices) if isinstance(devices, Iterable) else [devices]
    if not devices or not all(isinstance(device, jax.Device) for device in devices):
        raise ValueError(f"devices must be some of jax.devices() or a mesh of them, got {devices!r}")
    if len(set(devices)) < len(devices):
        raise ValueError(f"devices must be different ones, got {devices!r}")
    return devices


def mesh_of(devices: Sequence[Any]) -> Mesh | None:
    """The devices side by side; None for one alone."""
    if len(devices) == 1:
        return None
    return Mesh(np.array(devices), (_AXIS,), axis_types=(AxisType.Auto,))


@contextmanager
def instead_of_others(mesh: Mesh | None) -> Iterator[None]:
    """Lets a mesh hold where a user has set another one; while something is traced, JAX does not let it."""
    if mesh is None or jax.sharding.get_abstract_mesh().empty:
        yield
        return
    use: Any = getattr(jax, "set_mesh", None) or getattr(jax.sharding, "use_mesh")  # noqa: B009, as older JAX has it
    with use(mesh):
        yield


def everywhere(tree: Any, devices: Sequence[Any]) -> Any:
    """The arrays of a tree on every device."""
    mesh = mesh_of(devices)

    def put(array: Any) -> Array:
        if mesh is not None:
            return _put(array, NamedSharding(mesh, _EVERYWHERE))
        if not isinstance(array, jax.Array):
            return _from_host(array, devices[0])
        return array if array.devices() == set(devices) else jax.device_put(array, devices[0])

    # Array by array: older JAX would try a record with something else than arrays in it.
    return jax.tree.map(put, tree)


def apart(shares: Sequence[np.ndarray], devices: Sequence[Any]) -> Array:
    """Arrays of the same shape, each on its device, as one with a leading axis of devices.

    Args:
      shares: one for each device that is this process's own.
      devices: all of them.
    """
    mesh = mesh_of(devices)
    if mesh is None:
        return _from_host(shares[0][None], devices[0])
    return jax.make_array_from_single_device_arrays(
        (len(devices), *shares[0].shape),
        NamedSharding(mesh, PartitionSpec(_AXIS)),
        [jax.device_put(share[None], device) for share, device in zip(shares, own(devices), strict=True)],
    )


def own(devices: Sequence[Any]) -> list[Any]:
    """Those of this process."""
    return [device for device in devices if device.process_index == jax.process_index()]


def by_blocks(array: Any, mesh: Mesh, axis: int = 0) -> Array:
    """An array whose axis is cut into a block for each device."""
    return _put(array, NamedSharding(mesh, PartitionSpec(*[None] * axis, _AXIS)))


def on_host(array: Any) -> np.ndarray:
    """The whole of an array, of which other processes may have some; then all of them ask at once."""
    if isinstance(array, np.ndarray) or array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    # Some columns at a time: these go by way of every device, for which all may be too large.
    num_columns = array.shape[-1]
    width = max(1, min(num_columns, _PIECE * num_columns // array.nbytes))
    whole = np.empty(array.shape, array.dtype)
    for begin in range(0, num_columns, width):
        begin = min(begin, num_columns - width)  # the last ones begin earlier: one size to compile for
        some = _columns(array, begin, width=width)
        whole[..., begin : begin + width] = multihost_utils.process_allgather(some, tiled=True)
    return whole


@partial(jax.jit, static_argnames="width")
def _columns(array: Array, begin: Any, *, width: int) -> Array:
    return lax.dynamic_slice_in_dim(array, begin, width, axis=array.ndim - 1)


def host() -> Any:
    """The CPU as a device of this process; the usual one where JAX may not use it."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return jax.local_devices()[0]


def kept_on_host(array: np.ndarray) -> Array:
    """What may be too large for another device, as JAX's."""
    return jax.device_put(array, host())


def _put(array: Any, where: NamedSharding) -> Array:
    if where.is_fully_addressable:
        return jax.device_put(array, where)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        data = _put(jax.random.key_data(array), where)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(array))
    # Every process has the same array, which JAX would check by sending it around.
    array = on_host(array) if isinstance(array, jax.Array) else array
    return jax.make_array_from_callback(array.shape, where, lambda part: array[part])


def _from_host(array: Any, device: Any) -> Array:
    # On the usual device it is not bound to it: a W that is bound to another one may take it along.
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue], made at run time
    usual = device == jax.local_devices()[0] and chosen is None
    return jax.device_put(array, None if usual else device)


def summed(function: Callable[..., Any], mesh: Mesh | None, shared: Any, split: Any) -> Any:
    """The sum over devices of function(shared, split), where split is the device's own share."""

    def of_own(shared: Any, split: Any) -> Any:
        return function(shared, _own_share(split))

    if mesh is None:
        return of_own(shared, split)
    return _map(
        lambda shared, split: lax.psum(of_own(shared, split), _AXIS),
        mesh,
        in_specs=(_EVERYWHERE, PartitionSpec(_AXIS)),
    )(shared, split)


def around(
    function: Callable[..., tuple[Array, Array]], mesh: Mesh, rows: Any, theirs: Array, split: Any
) -> tuple[Array, Array]:
    """Lets each device's rows meet those of all devices, whose blocks go around.

    Args:
      function: of what was summed so far, a block of rows and a number; of a device's own block of the rows,
        that of another, and its piece for this one. Returns the sums with what these add to them.
      mesh: the devices.
      rows: arrays that are split by rows, or None.
      theirs: an array that is split by rows, whose blocks go around. Sums are blocks like these.
      split: shares of all devices, each with a leading axis of rounds: in round n device d meets the block of
        device d + n.

    Returns:
      The sums, split by rows in the same way; the number summed over devices too.
    """
    before = [(n, (n - 1) % mesh.size) for n in range(mesh.size)]

    def of_own(rows: Any, theirs: Array, split: Any) -> tuple[Array, Array]:
        split = _own_share(split)

        def meet(n: Array, carried: Any) -> Any:
            so_far, theirs = carried
            # The next block is on its way while this one is worked on; in the last round, its own comes home.
            # A last round outside of the loop would save that, but hold a second piece of S.
            coming = lax.ppermute(theirs, _AXIS, before)
            piece = jax.tree.map(lambda array: lax.dynamic_index_in_dim(array, n, keepdims=False), split)
            return function(so_far, rows, theirs, piece), coming

        nothing = (jnp.zeros_like(theirs), jnp.zeros((), theirs.dtype))
        (block, number), _ = lax.fori_loop(0, mesh.size, meet, (nothing, theirs))
        return block, lax.psum(number, _AXIS)

    out_specs = (PartitionSpec(_AXIS), _EVERYWHERE)
    return _map(of_own, mesh, PartitionSpec(_AXIS), out_specs)(rows, theirs, split)


def by_own_rows(function: Callable[..., Array], mesh: Mesh, shared: Any, *rows: Array) -> Array:
    """function(number of the device, shared, *rows), of its own block of rows: split, and staying so."""

    def of_own(shared: Any, *rows: Array) -> Array:
        return function(lax.axis_index(_AXIS), shared, *rows)

    specs = (_EVERYWHERE, *[PartitionSpec(_AXIS)] * len(rows))
    return _map(of_own, mesh, specs, PartitionSpec(_AXIS))(shared, *rows)


def by_rows(function: Callable[..., Array], mesh: Mesh | None, shared: Any, *rows: Array) -> Array:
    """function(shared, *rows), which treats each row for itself: every device takes its part of the rows."""
    num_rows = rows[0].shape[0]
    if mesh is None or num_rows < mesh.size:
        return function(shared, *rows)
    most = -(-num_rows // mesh.size)
    # The last parts begin earlier than a multiple of their size, so as to end with the rows.
    first = [min(n * most, num_rows - most) for n in range(mesh.size)]

    def of_own(shared: Any, *rows: Array) -> Array:
        begin = jnp.minimum(lax.axis_index(_AXIS) * most, num_rows - most)
        part = function(shared, *(lax.dynamic_slice_in_dim(array, begin, most) for array in rows))
        parts = lax.all_gather(part, _AXIS)
        if num_rows == most * mesh.size:
            return parts.reshape(num_rows, *part.shape[1:])
        ends = [min((n + 1) * most, num_rows) for n in range(mesh.size)]
        return jnp.concatenate(
            [parts[n, min(n * most, end) - first[n] : end - first[n]] for n, end in enumerate(ends)]
        )

    return _map(of_own, mesh, in_specs=_EVERYWHERE)(shared, *rows)


def _own_share(split: Any) -> Any:
    return jax.tree.map(lambda array: jnp.squeeze(array, axis=0), split)


def _map(
    function: Callable[..., Any], mesh: Mesh, in_specs: Any, out_specs: Any = _EVERYWHERE
) -> Callable[..., Any]:
    # That all devices end with the same result is for the collectives to see to: JAX cannot see it of
    # gathered parts, and its check wants different names in different releases.
    return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
