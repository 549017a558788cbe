"""Build a mesh of devices, put arrays on it, and run functions that share work among the devices.

S is always split over the devices. W is either replicated (every device holds all of it) or split by rows.
When W is split, blocks of its rows travel around the devices in a ring. A mesh of None means a single device.
The devices may belong to several processes; each process then fills the memory of its own devices only.
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

# What users may pass as devices.
Devices = Sequence[Any] | Mesh | None

_AXIS = "devices"
_REPLICATED = PartitionSpec()
_SPLIT = PartitionSpec(_AXIS)
# Bytes to gather from all processes at a time.
CHUNK_BYTES = 1 << 26


def checked_devices(devices: Any) -> list[Any]:
    """Return a list of devices from a list, a mesh or None (all devices of all processes)."""
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


def local_devices(devices: Sequence[Any]) -> list[Any]:
    """Return the devices that belong to this process."""
    return [device for device in devices if device.process_index == jax.process_index()]


def host_device() -> Any:
    """Return this process's CPU as a device, or its first device where JAX has no CPU backend."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return jax.local_devices()[0]


def make_mesh(devices: Sequence[Any]) -> Mesh | None:
    """Make a mesh with one axis, or return None for a single device."""
    if len(devices) == 1:
        return None
    return Mesh(np.array(devices), (_AXIS,), axis_types=(AxisType.Auto,))


@contextmanager
def override_mesh(mesh: Mesh | None) -> Iterator[None]:
    """Set the mesh where the user has set another one. JAX does not allow this while it traces."""
    if mesh is None or jax.sharding.get_abstract_mesh().empty:
        yield
        return
    use: Any = getattr(jax, "set_mesh", None) or getattr(jax.sharding, "use_mesh")  # noqa: B009, as older JAX has it
    with use(mesh):
        yield


# --- Put arrays on devices, and bring them back -------------------------------------------------------


def replicate(tree: Any, devices: Sequence[Any]) -> Any:
    """Put every array of a tree on every device."""
    mesh = make_mesh(devices)

    def put(array: Any) -> Array:
        if mesh is not None:
            return _put(array, NamedSharding(mesh, _REPLICATED))
        if not isinstance(array, jax.Array):
            return _put_from_host(array, devices[0])
        return array if array.devices() == set(devices) else jax.device_put(array, devices[0])

    # One array at a time: older JAX fails on a record that holds something other than arrays.
    return jax.tree.map(put, tree)


def stack_shares(shares: Sequence[Any], devices: Sequence[Any]) -> Any:
    """Put each share on its device, and return the shares as one record with a leading axis of devices.

    Args:
      shares: one record of arrays for each device of this process; all have the same shapes.
      devices: the devices of all processes.
    """
    mesh, own = make_mesh(devices), local_devices(devices)

    def stack(*arrays: np.ndarray) -> Array:
        if mesh is None:
            return _put_from_host(arrays[0][None], devices[0])
        return jax.make_array_from_single_device_arrays(
            (len(devices), *arrays[0].shape),
            NamedSharding(mesh, _SPLIT),
            [jax.device_put(array[None], device) for array, device in zip(arrays, own, strict=True)],
        )

    return jax.tree.map(stack, *shares)


def shard_axis(array: Any, mesh: Mesh, axis: int = 0) -> Array:
    """Split an axis of an array into one block per device."""
    return _put(array, NamedSharding(mesh, PartitionSpec(*[None] * axis, _AXIS)))


def to_host(array: Any) -> np.ndarray:
    """Copy a whole array to the host. All processes must call this if the array lies on several of them."""
    if isinstance(array, np.ndarray) or array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    # A few columns at a time: the gathered columns pass through every device, which may lack memory for all.
    num_columns = array.shape[-1]
    width = max(1, min(num_columns, CHUNK_BYTES * num_columns // array.nbytes))
    whole = np.empty(array.shape, array.dtype)
    for begin in range(0, num_columns, width):
        begin = min(begin, num_columns - width)  # the last chunk begins earlier: one size to compile for
        chunk = _columns(array, begin, width=width)
        whole[..., begin : begin + width] = multihost_utils.process_allgather(chunk, tiled=True)
    return whole


def fetch(tree: Any) -> Any:
    """Copy every array of a tree to the host.

    Raises:
      jax.errors.JaxRuntimeError: if an array could not be computed, for example for lack of memory.
    """
    # Alone, `device_get` would wait for ever for an array that could not be computed (JAX 0.10.2, on CPUs).
    return jax.device_get(jax.block_until_ready(tree))


@partial(jax.jit, static_argnames="width")
def _columns(array: Array, begin: Any, *, width: int) -> Array:
    return lax.dynamic_slice_in_dim(array, begin, width, axis=array.ndim - 1)


def _put(array: Any, where: NamedSharding) -> Array:
    if where.is_fully_addressable:
        return jax.device_put(array, where)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        data = _put(jax.random.key_data(array), where)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(array))
    # Every process has the same array. `device_put` would check that by sending the array to all of them.
    array = to_host(array) if isinstance(array, jax.Array) else array
    return jax.make_array_from_callback(array.shape, where, lambda part: array[part])


def _put_from_host(array: Any, device: Any) -> Array:
    # Left uncommitted on the default device, so that JAX may move the array to where a committed W lies.
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue], made at run time
    is_default = device == jax.local_devices()[0] and chosen is None
    return jax.device_put(array, None if is_default else device)


# --- Share work among devices -------------------------------------------------------------------------


def sum_over_devices(function: Callable[..., Any], mesh: Mesh | None, replicated: Any, split: Any) -> Any:
    """Sum function(replicated, own share of split) over the devices."""
    if mesh is None:
        return function(replicated, _own_share(split))

    def local(replicated: Any, split: Any) -> Any:
        return lax.psum(function(replicated, _own_share(split)), _AXIS)

    return _map(local, mesh, (_REPLICATED, _SPLIT))(replicated, split)


def ring_reduce(
    function: Callable[..., tuple[Array, Array]], mesh: Mesh, rows: Any, blocks: Array, split: Any
) -> tuple[Array, Array]:
    """Combine each device's rows with the blocks of all devices, which travel around the devices in a ring.

    Args:
      function: called as function(sums, own rows, visiting block, piece of this round). `sums` is a block and
        a number. The function returns both with its own contribution added.
      mesh: the devices.
      rows: arrays that are split by rows, or None. They stay on their device.
      blocks: an array that is split by rows. Its blocks travel. The summed block has the same shape.
      split: the shares of all devices, each with a leading axis of rounds. In round n, device d works with
        the block of device d + n.

    Returns:
      The summed blocks, split by rows, and the number summed over all devices.
    """
    to_previous = [(n, (n - 1) % mesh.size) for n in range(mesh.size)]

    def local(rows: Any, blocks: Array, split: Any) -> tuple[Array, Array]:
        split = _own_share(split)

        def one_round(n: Array, carried: Any) -> Any:
            sums, block = carried
            # The next block travels while this one is in use. The last round sends every block back to its
            # device, which is not needed. A last round outside of the loop would avoid this, but would
            # hold a second piece of S in memory.
            arriving = lax.ppermute(block, _AXIS, to_previous)
            piece = jax.tree.map(lambda array: lax.dynamic_index_in_dim(array, n, keepdims=False), split)
            return function(sums, rows, block, piece), arriving

        zero = (jnp.zeros_like(blocks), jnp.zeros((), blocks.dtype))
        (block, number), _ = lax.fori_loop(0, mesh.size, one_round, (zero, blocks))
        return block, lax.psum(number, _AXIS)

    return _map(local, mesh, _SPLIT, (_SPLIT, _REPLICATED))(rows, blocks, split)


def map_sharded_rows(function: Callable[..., Array], mesh: Mesh, replicated: Any, *rows: Array) -> Array:
    """Apply function(device number, replicated, *rows) to the rows of each device; the result stays split."""

    def local(replicated: Any, *rows: Array) -> Array:
        return function(lax.axis_index(_AXIS), replicated, *rows)

    return _map(local, mesh, (_REPLICATED, *[_SPLIT] * len(rows)), _SPLIT)(replicated, *rows)


def map_replicated_rows(
    function: Callable[..., Array], mesh: Mesh | None, replicated: Any, *rows: Array
) -> Array:
    """Apply a row-wise function(replicated, *rows), each device to a part of the rows, and gather."""
    num_rows = rows[0].shape[0]
    if mesh is None or num_rows < mesh.size:
        return function(replicated, *rows)
    most = -(-num_rows // mesh.size)

    def local(replicated: Any, *rows: Array) -> Array:
        # All parts have the same size. The last ones begin earlier so that they end with the last row.
        begin = jnp.minimum(lax.axis_index(_AXIS) * most, num_rows - most)
        part = function(replicated, *(lax.dynamic_slice_in_dim(array, begin, most) for array in rows))
        parts = lax.all_gather(part, _AXIS)
        if num_rows == most * mesh.size:
            return parts.reshape(num_rows, *part.shape[1:])
        num_repeated = [max(0, (n + 1) * most - num_rows) for n in range(mesh.size)]
        return jnp.concatenate([parts[n, repeated:] for n, repeated in enumerate(num_repeated)])

    return _map(local, mesh, in_specs=_REPLICATED)(replicated, *rows)


def _own_share(split: Any) -> Any:
    return jax.tree.map(lambda array: jnp.squeeze(array, axis=0), split)


def _map(
    function: Callable[..., Any], mesh: Mesh, in_specs: Any, out_specs: Any = _REPLICATED
) -> Callable[..., Any]:
    # `check_vma` is off: JAX cannot prove that gathered parts are the same on all devices, and its check
    # wants different names in different releases. The collectives above guarantee it.
    return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
