"""Compute how a large S would lie on accelerators and in D x D blocks. jobs.py calls this."""

from typing import Any

import numpy as np
import zipf


def cuts(job: dict[str, Any]) -> dict[str, Any]:
    """Return how a large S would lie on accelerators and in D x D blocks, without solving."""
    from dcdjax.devices import layout, packing
    from dcdjax.util.parallel import in_order

    matrix = zipf.make(job["words"], job["nonzeros"], seed=job["seed"]).matrix
    kind = layout.DEVICE_KINDS["accelerator"]
    tiles, segments = packing.pack(
        matrix,
        divisor=1.0,
        dtype=np.dtype(np.float32),
        tile_size=kind.tile_size,
        cells_per_nonzero=kind.cells_per_nonzero,
        num_parts=1,
    )
    width = segments.columns.shape[1]
    of_segments = sum(part.nbytes for part in (segments.rows, segments.columns, segments.values))
    in_segments = int(np.count_nonzero(segments.values))
    accelerator = {
        "tiles": int(tiles.rows.size),
        "nonzeros_in_tiles": 1 - in_segments / matrix.nnz,
        "tiles_bytes_per_nonzero": tiles.values.nbytes / max(1, matrix.nnz - in_segments),
        "segments_bytes_per_nonzero": of_segments / in_segments,
        "bytes_per_nonzero": (tiles.values.nbytes + of_segments) / matrix.nnz,
    }
    del tiles, segments
    rows_at_a_time = 2000

    def blocks(D: int) -> dict[str, Any]:
        """Split the words over D devices one by one or in runs. Each block is padded to the largest one."""
        N, each = matrix.shape[0], -(-matrix.shape[0] // D)

        def look(first: int) -> tuple[int, np.ndarray, np.ndarray]:
            last = min(first + rows_at_a_time, N)
            columns = matrix.indices[matrix.indptr[first] : matrix.indptr[last]]
            rows = np.repeat(np.arange(last - first), np.diff(matrix.indptr[first : last + 1]))
            dealt = np.bincount(rows * D + columns % D, minlength=(last - first) * D).reshape(-1, D)
            in_runs = np.bincount(rows * D + columns // each, minlength=(last - first) * D).reshape(-1, D)
            sums = []
            for counts, owners in (
                (dealt, np.arange(first, last) % D),
                (in_runs, np.arange(first, last) // each),
            ):
                total = np.zeros((D, D), np.int64)
                np.add.at(total, owners, -(-counts // width))
                sums.append(total)
            return int(sums[0].sum()), *sums

        num_segments, dealt, in_runs = 0, np.zeros((D, D), np.int64), np.zeros((D, D), np.int64)
        for _, (many, of_dealt, of_runs) in in_order(look, range(0, N, rows_at_a_time)):
            num_segments, dealt, in_runs = num_segments + many, dealt + of_dealt, in_runs + of_runs
        return {
            "devices": D,
            "nonzeros_per_row_of_block": matrix.nnz / N / D,
            "slots_per_nonzero": num_segments * width / matrix.nnz,
            "largest_block_dealt": float(dealt.max() / dealt.mean()),
            "largest_block_in_runs": float(in_runs.max() / in_runs.mean()),
        }

    return {
        "words": matrix.shape[0],
        "nonzeros": int(matrix.nnz),
        "width": width,
        "accelerator": accelerator,
        "blocks": [blocks(D) for D in job["blocks"]],
    }
