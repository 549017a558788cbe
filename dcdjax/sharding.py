"""Devices enter; a mesh of them, and functions that share their work among it, leave.

W and what is computed from it are the same on every device; S is split. A mesh of None is a single device.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

_AXIS = "devices"


def checked(devices: Any) -> list[Any]:
    """The devices that were asked for; all local ones for None."""
    devices = jax.local_devices() if devices is None else devices
    devices = list(devices) if isinstance(devices, Iterable) else [devices]
    if not devices or not all(isinstance(device, jax.Device) for device in devices):
        raise ValueError(f"devices must be some of jax.devices(), got {devices!r}")
    if len(set(devices)) < len(devices):
        raise ValueError(f"devices must be different ones, got {devices!r}")
    return devices


def mesh_of(devices: Sequence[Any]) -> Mesh | None:
    """The devices side by side; None for one alone."""
    if len(devices) == 1:
        return None
    return Mesh(np.array(devices), (_AXIS,), axis_types=(AxisType.Auto,))


def everywhere(tree: Any, devices: Sequence[Any]) -> Any:
    """The arrays of a tree on every device."""
    mesh = mesh_of(devices)

    def put(array: Any) -> Array:
        if mesh is not None:
            return jax.device_put(array, NamedSharding(mesh, PartitionSpec()))
        if not isinstance(array, jax.Array):
            return _from_host(array, devices[0])
        return array if array.devices() == set(devices) else jax.device_put(array, devices[0])

    # Array by array: older JAX would try a record with something else than arrays in it.
    return jax.tree.map(put, tree)


def apart(shares: Sequence[np.ndarray], devices: Sequence[Any]) -> Array:
    """Arrays of the same shape, each on its device, as one with a leading axis of devices."""
    mesh = mesh_of(devices)
    if mesh is None:
        return _from_host(shares[0][None], devices[0])
    return jax.make_array_from_single_device_arrays(
        (len(devices), *shares[0].shape),
        NamedSharding(mesh, PartitionSpec(_AXIS)),
        [jax.device_put(share[None], device) for share, device in zip(shares, devices, strict=True)],
    )


def _from_host(array: Any, device: Any) -> Array:
    # On the usual device it is not bound to it: a W that is bound to another one may take it along.
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue], made at run time
    usual = device == jax.local_devices()[0] and chosen is None
    return jax.device_put(array, None if usual else device)


def summed(function: Callable[..., Any], mesh: Mesh | None, shared: Any, split: Any) -> Any:
    """The sum over devices of function(shared, split), where split is the device's own share."""

    def own(shared: Any, split: Any) -> Any:
        return function(shared, jax.tree.map(lambda array: jnp.squeeze(array, axis=0), split))

    if mesh is None:
        return own(shared, split)
    return _map(
        lambda shared, split: lax.psum(own(shared, split), _AXIS),
        mesh,
        in_specs=(PartitionSpec(), PartitionSpec(_AXIS)),
    )(shared, split)


def by_rows(function: Callable[..., Array], mesh: Mesh | None, shared: Any, *rows: Array) -> Array:
    """function(shared, *rows), which treats each row for itself: every device takes its part of the rows."""
    num_rows = rows[0].shape[0]
    if mesh is None or num_rows < mesh.size:
        return function(shared, *rows)
    most = -(-num_rows // mesh.size)
    # The last parts begin earlier than a multiple of their size, so as to end with the rows.
    first = [min(n * most, num_rows - most) for n in range(mesh.size)]

    def own(shared: Any, *rows: Array) -> Array:
        begin = jnp.minimum(lax.axis_index(_AXIS) * most, num_rows - most)
        part = function(shared, *(lax.dynamic_slice_in_dim(array, begin, most) for array in rows))
        parts = lax.all_gather(part, _AXIS)
        if num_rows == most * mesh.size:
            return parts.reshape(num_rows, *part.shape[1:])
        ends = [min((n + 1) * most, num_rows) for n in range(mesh.size)]
        return jnp.concatenate(
            [parts[n, min(n * most, end) - first[n] : end - first[n]] for n, end in enumerate(ends)]
        )

    return _map(own, mesh, in_specs=PartitionSpec())(shared, *rows)


def _map(function: Callable[..., Any], mesh: Mesh, in_specs: Any) -> Callable[..., Any]:
    # That all devices end with the same result is for the collectives to see to: JAX cannot see it of
    # gathered parts, and its check wants different names in different releases.
    return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=PartitionSpec(), check_vma=False)
