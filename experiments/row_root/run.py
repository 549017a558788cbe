"""Count the iterations of the exact step's row root: Newton's method against two groups of poles.

python experiments/row_root/run.py
"""

import json
import sys
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import numpy as np

from dcdjax.method import decomposition, row_root
from dcdjax.starts import initialize

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "tests"))
from problems import ROOT_KINDS, pair, random_S, root_problem

SEED, MOST = 0, 200


def newton(A, poles, x):
    """Take a step of Newton's method for 1 / g(x) = 1: all poles are one group."""
    terms = A / (poles + x)
    row_sum = terms.sum(1, keepdims=True)
    slope = (terms / (poles + x)).sum(1, keepdims=True)
    return row_sum, x + row_sum * (row_sum - 1) / slope


def iterations(climb, A, poles):
    """Count the steps until each row sum is one, up to the square root of the rounding error."""
    close = float(np.sqrt(np.finfo(A.dtype).eps))
    x = jnp.maximum((A - poles).max(1, keepdims=True), float(np.finfo(A.dtype).tiny))
    count = np.zeros(len(A), int)
    for _ in range(MOST):
        row_sum, closer = climb(A, poles, x)
        open_rows = np.abs(np.asarray(row_sum)[:, 0] - 1) > close
        if not open_rows.any():
            break
        count += open_rows
        x = jnp.maximum(x, closer)
    return count + 1


def rows_of_a_run(dtype):
    """Yield the rows of 30 solver steps on a random problem of 300 words and 40 topics."""
    rng = np.random.default_rng(SEED)
    S_idx, S_val = pair(random_S(rng, 300, density=0.1, spread=2.0), dtype)
    S_val, _ = decomposition.normalize(S_val, 300)
    W = initialize.uniform(jax.random.key(SEED), 300, 40, dtype=dtype)
    for _ in range(30):
        ZW = decomposition.sweep(W, S_idx, S_val).ZW
        sums = decomposition.column_sums(W, ZW)
        yield W * (2 * ZW / sums.s), sums.plus - sums.plus.min()
        W = decomposition.exact_step(sums, W, ZW)


def main():
    methods = {"Newton": jax.jit(newton), "two groups": jax.jit(row_root.climb)}
    results = []
    for dtype in (np.float32, np.float64):
        problems = {"a run of the solver": list(rows_of_a_run(dtype))}
        for kind in ROOT_KINDS:
            A, poles = root_problem(kind, np.random.default_rng(SEED), num_rows=2000)
            problems[kind] = [(jnp.asarray(A.astype(dtype)), jnp.asarray(poles.astype(dtype)))]
        for kind, rows in problems.items():
            entry: dict[str, Any] = {"dtype": np.dtype(dtype).name, "rows": kind}
            for name, climb in methods.items():
                counts = np.concatenate([iterations(climb, A, poles) for A, poles in rows])
                entry[name] = {"median": int(np.median(counts)), "most": int(counts.max())}
            results.append(entry)
    print(f"| dtype | rows | {' | '.join(f'{name}: median, most' for name in methods)} |")
    print("|---|---|---|---|")
    for entry in results:
        cells = " | ".join(f"{entry[name]['median']}, {entry[name]['most']}" for name in methods)
        print(f"| {entry['dtype']} | {entry['rows']} | {cells} |")
    (HERE / "results.json").write_text(
        json.dumps({"seed": SEED, "jax": jax.__version__, "results": results}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
