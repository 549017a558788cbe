"""Compute bytes and seconds for a far larger S from measurements and data sheets, for plan.py."""

from dataclasses import dataclass
from typing import Any

import numpy as np

WORDS, NONZEROS, TOPICS = 1_000_000, 10_000_000_000, (200, 500)
FLOAT = 4  # bytes
MOST_DEVICES = 1 << 12


@dataclass(frozen=True)
class Accelerator:
    """Hold numbers of a data sheet, not measured. GB are 10^9 bytes; links are in one direction.

    Attributes:
      memory: GB.
      bandwidth: GB/s of that memory.
      multiplies: 10^12 floating-point operations a second, exact in float32. A TPU multiplies in bfloat16, of
        which `lax.Precision.HIGHEST` takes six for each: a sixth of the sheet's number.
      link: GB/s to other devices of the same domain, all links together.
      domain: devices that are so linked.
      beyond: GB/s of each device to other domains.
    """

    name: str
    memory: float
    bandwidth: float
    multiplies: float
    link: float
    domain: int
    beyond: float


ACCELERATORS = (
    # NVLink 600 GB/s both ways; eight in a DGX, each with a port of 200 Gbit/s.
    Accelerator("A100 80 GB SXM", 80, 2039, 19.5, 300, 8, 25),
    # NVLink 900 GB/s both ways; eight in a DGX, each with a port of 400 Gbit/s.
    Accelerator("H100 80 GB SXM", 80, 3350, 67, 450, 8, 50),
    # 400 GB/s both ways; a pod of 256 has 6.4 Tbit/s to others.
    Accelerator("TPU v5e", 16, 819, 197 / 6, 200, 256, 6400 / 8 / 256),
    # 95 GiB; 1,200 GB/s both ways; slices of up to 6,144; 50 Gbit/s for each chip to others.
    Accelerator("TPU v5p", 102, 2765, 459 / 6, 600, 6144, 50 / 8),
)
# Of a device's memory, for arrays; the rest is the program's and what lies between arrays.
USABLE = 0.9
# How often a gathered row of W goes through memory. In XLA: read, written down, read for either product.
XLA, FUSED = 4, 1


@dataclass(frozen=True)
class Measured:
    """Hold the numbers of results.json that the page is computed from.

    Attributes:
      of_nonzero: nanoseconds of a nonzero and topic, on a core.
      of_word: those of a word and topic, for all that is not a pass over S.
      copy: GB/s that a core copies, read and written.
      S_bytes: of a nonzero as it would lie on an accelerator, in segments and in tiles.
      in_tiles: the share of nonzeros there.
      extra: S on a device that has all of W, in sizes of W: the solver's state, what a step needs.
      extra_split: the same of a device that has some rows, in sizes of its share.
      blocks: of D x D of them: nonzeros of a row in each, slots for a nonzero, the largest over the mean.
      host: bytes for each nonzero at the worst moment from drawing S to the last step.
    """

    of_nonzero: float
    of_word: float
    copy: float
    S_bytes: float
    S_bytes_tiled: float
    cells: float
    in_tiles: float
    extra: tuple[float, float]
    extra_split: tuple[float, float]
    split_was_measured: bool
    blocks: list[tuple[float, float, float]]
    host: float

    @property
    def passes(self) -> float:
        """Return how often a step moves all of W through memory, apart from the pass over S."""
        return self.of_word * self.copy / FLOAT

    def slots(self, D: int) -> float:
        """Return the padded slots for each nonzero if S is cut into D x D blocks."""
        x, slots, largest = (np.array(column) for column in zip(*sorted(self.blocks), strict=True))
        each = np.log(NONZEROS / WORDS / D)
        return float(
            np.exp(np.interp(each, np.log(x), np.log(slots)) + np.interp(each, np.log(x), np.log(largest)))
        )


def measured(results: dict[str, Any]) -> Measured:
    core, big, cuts = results["summary"]["one core"], results["big"], results["cuts"]

    def extra(way: str, share: int) -> tuple[float, float]:
        one = next(one for one in results["scaling"] if one["way"] == way)
        sizes = max(one["state_MB_each"]), one["temporary_MB_each"]
        return sizes[0] * share / one["W_MB"], sizes[1] * share / one["W_MB"]

    of_whole = extra("two devices, XLA", 1)
    can_split = any(one["split"] for one in results["scaling"])
    return Measured(
        of_nonzero=core["nanoseconds per nonzero and topic"],
        of_word=core["nanoseconds per word and topic"],
        copy=results["copy_GB_per_second"]["1"],
        S_bytes=cuts["accelerator"]["segments_bytes_per_nonzero"],
        S_bytes_tiled=cuts["accelerator"]["bytes_per_nonzero"],
        cells=cuts["accelerator"]["tiles_bytes_per_nonzero"] / FLOAT,
        in_tiles=cuts["accelerator"]["nonzeros_in_tiles"],
        extra=of_whole,
        # If it was not measured: as the whole, and two blocks of W on their way.
        extra_split=extra("two devices, W split, XLA", 2) if can_split else (of_whole[0], of_whole[1] + 2),
        split_was_measured=can_split,
        blocks=[
            (one["nonzeros_per_row_of_block"], one["slots_per_nonzero"], one["largest_block_dealt"])
            for one in cuts["blocks"]
        ],
        host=max(one["peak_GB"] for one in big["stages"]) * 1e9 / big["nonzeros"],
    )


# --- The model: bytes and seconds of a step -------------------------------------------------------------


def gigabytes(r: int) -> float:
    """Return the GB of W, which are also those of ZW."""
    return WORDS * r * FLOAT / 1e9


def memory(m: Measured, r: int, D: int, way: str) -> float:
    """Return the GB on each device."""
    S = NONZEROS * m.S_bytes / 1e9
    if way == "replicated":
        return S / D + sum(m.extra) * gigabytes(r)
    return S * m.slots(D) / m.slots(1) / D + sum(m.extra_split) * gigabytes(r) / D


def fewest(m: Measured, r: int, device: Accelerator, way: str) -> int | None:
    fitting = (D for D in range(1, MOST_DEVICES + 1) if memory(m, r, D, way) <= USABLE * device.memory)
    return next(fitting, None)


def gathering(r: int, device: Accelerator, through: int) -> float:
    """Return the seconds of a pass on one device, limited by bytes or by operations."""
    gathered = through * NONZEROS * r * FLOAT / 1e9 / device.bandwidth
    return max(gathered, 4 * NONZEROS * r / 1e12 / device.multiplies)


def tiled(m: Measured, r: int, device: Accelerator) -> float:
    """Return the same with nonzeros in tiles: three products for a cell and its mirror image."""
    cells = m.in_tiles * NONZEROS * m.cells
    in_tiles = max(cells * FLOAT / 1e9 / device.bandwidth, 6 * cells * r / 1e12 / device.multiplies)
    return (1 - m.in_tiles) * gathering(r, device, XLA) + in_tiles


def handed_on(r: int, D: int, way: str) -> float:
    """Return the GB that each device sends in a step. It receives as many."""
    if way == "replicated":  # all-reduce of ZW, all-gather of W
        return 3 * gigabytes(r) * (D - 1) / D
    if way == "split":  # each block of W goes around the ring, and comes back
        return gigabytes(r) if D > 1 else 0.0
    return min(sum(_along(r, *shape)) for shape in _shapes(D))


def _shapes(D: int) -> list[tuple[int, int]]:
    """Return the rows and columns of all grids of D devices, D a power of two."""
    return [(1 << n, D >> n) for n in range(D.bit_length())]


def _along(r: int, rows: int, columns: int) -> tuple[float, float]:
    """Return the GB along a row of a grid (to gather W and to sum ZW) and along a column (to gather W)."""
    W = gigabytes(r)
    return 2 * W / rows * (columns - 1) / columns, W / columns * (rows - 1) / rows


def grid(r: int, D: int, device: Accelerator) -> tuple[tuple[int, int], float]:
    """Find the best grid and the seconds of its communication. Short rows stay within a domain."""

    def seconds(shape: tuple[int, int]) -> float:
        along_row, along_column = _along(r, *shape)
        of_row = device.link if shape[1] <= device.domain else device.beyond
        of_column = device.link if device.domain >= D else device.beyond
        return along_row / of_row + along_column / of_column

    best = min(_shapes(D), key=seconds)
    return best, seconds(best)


def talking(r: int, D: int, way: str, device: Accelerator) -> float:
    """Return the seconds of communication. Collectives use the ports of a whole domain, a ring only one."""
    if way == "grid":
        return grid(r, D, device)[1]
    sent = handed_on(r, D, way)
    if device.domain >= D:
        return sent / device.link
    if way == "split":
        return sent / device.beyond
    return max(sent / device.link, sent / (device.domain * device.beyond))


def working(m: Measured, r: int, D: int, way: str, device: Accelerator, through: int) -> float:
    """Return the seconds of a device's own work. A device with all of W updates all rows."""
    of_words = m.passes * gigabytes(r) / device.bandwidth
    share = gathering(r, device, through) / D
    if way == "replicated":
        return share + of_words
    pieces = D if way == "split" else grid(r, D, device)[0][1]  # that a row of S is cut into
    return share * m.slots(pieces) / m.slots(1) + of_words / D


def step(m: Measured, r: int, D: int, way: str, device: Accelerator, through: int) -> float:
    """Return the seconds of a step, without overlap of work and communication."""
    return working(m, r, D, way, device, through) + (talking(r, D, way, device) if D > 1 else 0)


def powers(least: int = 1) -> list[int]:
    return [1 << n for n in range(MOST_DEVICES.bit_length()) if 1 << n >= least]


def turning(m: Measured, r: int, way: str, device: Accelerator, through: int) -> dict[str, int | None]:
    """Return the numbers of devices where communication equals the pass, and where doubling gains < 1.25."""
    talks = (D for D in powers(2) if talking(r, D, way, device) >= gathering(r, device, through) / D)
    gains = (
        D
        for D in powers()[:-1]
        if step(m, r, D, way, device, through) < 1.25 * step(m, r, 2 * D, way, device, through)
    )
    return {"talks": next(talks, None), "gains": next(gains, None)}
