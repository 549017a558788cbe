"""Write plan.md from results.json: what a million words and ten billion nonzeros would need.

Every number on that page is computed by model.py, from what run.py measured and from data sheets.
"""

import json
import math
from pathlib import Path
from typing import Any

from model import (
    ACCELERATORS,
    FLOAT,
    FUSED,
    MOST_DEVICES,
    NONZEROS,
    TOPICS,
    USABLE,
    WORDS,
    XLA,
    Measured,
    fewest,
    gathering,
    gigabytes,
    handed_on,
    measured,
    memory,
    powers,
    step,
    talking,
    tiled,
    turning,
)

HERE = Path(__file__).parent
WAYS = ("replicated", "split", "grid")
MOST_LOAD = 0.5  # of others, in cores


def table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in cells) + " |" for cells in lines)


def number(value: float | None) -> str:
    if value is None:
        return f"> {MOST_DEVICES:,}"
    if value >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.{max(0, 1 - math.floor(math.log10(abs(value))))}f}"


def sheets() -> str:
    head = [
        "",
        "memory, GB",
        "its GB/s",
        "float32, TFLOP/s",
        "link, GB/s",
        "devices so linked",
        "beyond, GB/s",
    ]
    return table(
        head,
        [
            [
                a.name,
                *(
                    f"{n:,.3g}" if n < 1000 else f"{n:,}"
                    for n in (a.memory, a.bandwidth, a.multiplies, a.link, a.domain, a.beyond)
                ),
            ]
            for a in ACCELERATORS
        ],
    )


def memories(m: Measured) -> str:
    rows = []
    for r in TOPICS:
        for a in ACCELERATORS:
            least = [fewest(m, r, a, way) for way in ("replicated", "split")]
            each = [
                number(memory(m, r, D, way)) if D else "-" for D, way in zip(least, WAYS[:2], strict=True)
            ]
            rows.append([r, a.name, number(least[0]), each[0], number(least[1]), each[1]])
    head = ["topics", "", "fewest, W on each", "GB on each", "fewest, W split", "GB on each "]
    return table(head, rows)


def speeds(m: Measured, r: int, through: int) -> str:
    rows = []
    for a in ACCELERATORS:
        alone = step(m, r, 1, "replicated", a, through)
        for D in (8, 16, 64, 256, 1024):
            cells = []
            for way in WAYS:
                seconds = step(m, r, D, way, a, through)
                talk = talking(r, D, way, a) / seconds
                cells.append(f"{1000 * seconds:,.0f} ms, x {alone / seconds:,.0f} ({talk:.0%})")
            rows.append([a.name if D == 8 else "", D, *cells])
    return table(["", "devices", "W on each", "W split, a ring", "a grid"], rows)


def turns(m: Measured) -> str:
    rows = []
    for r in TOPICS:
        for a in ACCELERATORS:
            cells = []
            for way in WAYS:
                for through in (XLA, FUSED):
                    found = turning(m, r, way, a, through)
                    cells.append(f"{number(found['talks'])} / {number(found['gains'])}")
            rows.append([r, a.name, *cells])
    kinds = [f"{way}, {kind}" for way in ("W on each", "ring", "grid") for kind in ("XLA", "fused")]
    return table(["topics", "", *kinds], rows)


def page(results: dict[str, Any]) -> str:
    m, big, first = measured(results), results["big"], ACCELERATORS[0]
    few, many = TOPICS
    each = NONZEROS // WORDS
    half_empty = next(D for D in range(1, 1 << 20) if m.slots(D) >= 2)
    of_large = big["nonzeros"] / big["words"]
    rates = [
        ["a nonzero and topic in the pass, on a core here", f"{m.of_nonzero:.3f} ns"],
        ["a word and topic in all else of a step", f"{m.of_word:.2f} ns"],
        ["a core copies, read and written", f"{m.copy:.1f} GB/s"],
        ["so all else takes W through memory", f"{m.passes:.0f} times"],
        [
            f"a step of the large S ({big['nonzeros'] / 1e6:.0f} M nonzeros, {big['topics']} topics)",
            f"{big['step']:.2f} s on {big['cores']} cores",
        ],
        ["bytes of a nonzero in segments, padding and rows included", f"{m.S_bytes:.2f}"],
        ["bytes of a nonzero with an accelerator's tiles", f"{m.S_bytes_tiled:.2f}"],
        ["nonzeros in those tiles; cells of tiles for each", f"{m.in_tiles:.0%}; {m.cells:.1f}"],
        ["in addition to S on a device: state; temporaries", "{:.1f} W; {:.1f} W".format(*m.extra)],
        [
            "the same, W split" + ("" if m.split_was_measured else " (**assumed**, not measured)"),
            "{:.1f} W / D; {:.1f} W / D".format(*m.extra_split),
        ],
        ["bytes of a nonzero on the host at the worst moment", f"{m.host:.0f}"],
    ]
    tiles = [
        [a.name, *map(number, (gathering(few, a, XLA), tiled(m, few, a), gathering(few, a, FUSED)))]
        for a in ACCELERATORS
    ]
    talked = [
        [what, formula, *(number(handed_on(r, 64, way)) for r in TOPICS)]
        for way, what, formula in (
            ("replicated", "replicated: all-reduce of ZW, all-gather of W", "`3 * 4 N r (D-1)/D`"),
            ("split", "split: blocks of W around a ring", "`4 N r`"),
            ("grid", "a grid of p x q devices, the best of them", "`4 N r (2 (q-1)/q/p + (p-1)/p/q)`"),
        )
    ]
    crossing = XLA * each / 3 / first.bandwidth
    return (
        (HERE / "plan.template.md")
        .read_text()
        .format(
            N=WORDS,
            n=NONZEROS,
            cores=results["machine"]["cores"],
            quiet=quiet(results),
            rates=table(["", ""], rates),
            sheets=sheets(),
            usable=USABLE,
            xla=XLA,
            few=few,
            many=many,
            S=number(NONZEROS * m.S_bytes / 1e9),
            S_tiled=number(NONZEROS * m.S_bytes_tiled / 1e9),
            W_few=number(gigabytes(few)),
            W_many=number(gigabytes(many)),
            extra=sum(m.extra),
            extra_split=sum(m.extra_split),
            memories=memories(m),
            host=m.host,
            host_GB=number(NONZEROS * m.host / 1e9),
            gathered=number(NONZEROS * few * FLOAT / 1e12),
            else_TB=number(m.passes * gigabytes(few) / 1000),
            tiles=table(["", "XLA", f"XLA, {m.in_tiles:.0%} of the nonzeros in tiles", "fused"], tiles),
            here=number(m.of_nonzero * NONZEROS * few / 1e9),
            talked=table(["", "formula", f"r = {few}", f"r = {many}"], talked),
            speeds_xla=speeds(m, few, XLA),
            speeds_fused=speeds(m, few, FUSED),
            turns=turns(m),
            each=each,
            cross_near=number(round(crossing * first.link)),
            cross_far=number(round(crossing * first.domain * first.beyond)),
            else_ms=number(1000 * m.passes * gigabytes(few) / first.bandwidth),
            half_empty=number(half_empty),
            half_row=number(each / half_empty),
            big_each=of_large,
            half_here=number(round(half_empty * of_large / each)),
            runs=next(
                one["largest_block_in_runs"] for one in results["cuts"]["blocks"] if one["devices"] == 8
            ),
            grid_pays=next(D for D in powers(2) if handed_on(few, D, "grid") < handed_on(few, D, "split")),
            topics_sent=number(2 * NONZEROS * FLOAT / 1e9),
            topics_ratio=number(2 * each / few),
            message=number(1000 * gigabytes(few) / 64),
        )
    )


def quiet(results: dict[str, Any]) -> str:
    """Return whether the machine was quiet enough for the seconds to count."""
    load = results.get("load_before")
    if load is not None and load < MOST_LOAD:
        return f"The machine was quiet: a load of {load:.1f} before."
    known = "not recorded" if load is None else f"{load:.1f}"
    return (
        f"**The machine was not known to be quiet** (load before: {known}): all that follows from seconds, "
        "above all how often W goes through memory, is provisional; bytes are not."
    )


def readme(results: dict[str, Any]) -> str:
    """Return the tables of README.md."""
    found, big = results["summary"], results["big"]
    ways = []
    for one in results["scaling"]:
        gains = found.get(one["way"], {}) if one["S"] == "two shares" else {}
        each = (max(one["S_MB_each"]), max(one["state_MB_each"]), one["temporary_MB_each"])
        ways.append(
            [
                f"{one['words']:,} words, {one['nonzeros'] / 1e6:.1f} M",
                one["way"],
                f"{one['step']:.3f} s",
                *(
                    f"{gains[name]:.2f}" if name in gains else ""
                    for name in ("strong, speed-up", "weak, efficiency")
                ),
                " + ".join(f"{size:.0f}" for size in each),
                f"{one['peak_GB']:.2f}",
            ]
        )
    head = ["S", "way", "a step", "speed-up", "weak", "S + state + temporaries, MB on a device", "peak, GB"]
    stages = [
        [one["stage"], f"{one['seconds']:.1f}", f"{one['peak_GB']:.2f}", f"{one['after_GB']:.2f}"]
        for one in big["stages"]
    ]
    return f"""{table(head, ways)}

Two independent processes: {found["two independent processes, efficiency"]:.2f}

{table(["stage", "seconds", "peak, GB", "after it, GB"], stages)}

{big["words"]:,} words, {big["nonzeros"]:,} nonzeros: {big["step"]:.2f} s a step
(median {big["step_median"]:.2f}), peak {big["peak_GB"]:.2f} GB,
objective {big["objective"][0]:.4g} to {big["objective"][-1]:.4g}, groups {big["found_groups"]:.2f}
"""


def main() -> None:
    results = json.loads((HERE / "results.json").read_text())
    (HERE / "plan.md").write_text(page(results))
    print(readme(results))


if __name__ == "__main__":
    main()
