"""Measure a step on one and two devices, and whether a large S fits here. See README.md beside this file."""

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 0
TOPICS = 200
MOST_GB = 16.0  # of each process, which ends if it takes more
# Of one device's share: as many nonzeros for each word as the large S has.
WORDS, NONZEROS = 20_000, 10_000_000
BIG_WORDS, BIG_NONZEROS, BIG_STEPS = 200_000, 100_000_000, 10
BLOCKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def ask(job: dict[str, Any]) -> dict[str, Any]:
    """Run a job in its own process."""
    environment = {**os.environ, "DCDJAX_NATIVE": str(int(job.get("native", True)))}
    command = [sys.executable, str(HERE / "jobs.py"), json.dumps({**job, "seed": SEED, "most_GB": MOST_GB})]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)  # noqa: S603, our own words
    if done.returncode:
        raise SystemExit(f"{job}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def scaling(folder: str, words: int, nonzeros: int, seconds: float) -> list[dict[str, Any]]:
    """Measure one share of S and two shares, on one device and on two, with a core for each device."""
    paths, table = {}, []
    for name, shares in {"one share": 1, "two shares": 2}.items():
        paths[name] = str(Path(folder) / f"{shares}.npz")
        size = {"words": shares * words, "nonzeros": shares * nonzeros}
        ask({"what": "make", "matrix": paths[name], **size})

    def job(S: str, way: str, **more: Any) -> dict[str, Any]:
        usual = {"what": "step", "topics": TOPICS, "seconds": seconds, "split": False, "native": True}
        return {**usual, "S": S, "way": way, "matrix": paths[S], **more}

    def add(job: dict[str, Any], found: dict[str, Any]) -> None:
        entry = {name: job[name] for name in ("S", "way", "devices", "native", "split")}
        table.append(rounded({**entry, "cores": len(job["cores"]), **found}))
        print(line(table[-1]), flush=True)

    def alone(S: str, way: str, **more: Any) -> None:
        one = job(S, way, **more)
        add(one, ask(one))

    one, two = {"devices": 1, "cores": [0]}, {"devices": 2, "cores": [0, 1]}
    alone("one share", "one device", **one)
    # What the machine itself leaves of twice the speed: two that have nothing to tell each other.
    pair = [job("one share", "two independent processes", devices=1, cores=[core]) for core in (0, 1)]
    with ThreadPoolExecutor(2) as pool:
        for asked, found in zip(pair, pool.map(ask, pair), strict=True):
            add(asked, found)
    alone("two shares", "one device", **one)
    alone("two shares", "one device, two threads", devices=1, cores=[0, 1])
    alone("two shares", "two devices", **two)
    alone("two shares", "one device, XLA", **one, native=False)
    alone("two shares", "two devices, XLA", **two, native=False)
    alone("two shares", "two devices, W split", **two, split=True)
    alone("two shares", "two devices, W split, XLA", **two, split=True, native=False)
    return table


def summary(table: list[dict[str, Any]]) -> dict[str, Any]:
    """Return speed-ups and efficiencies from the seconds in results.json."""

    def of(S: str, way: str, name: str = "step") -> float:
        # Of two at once the slower one, and its median: for a moment at the end it may be alone.
        return max(one[name] for one in table if one["S"] == S and one["way"] == way)

    found: dict[str, Any] = {
        "two independent processes, efficiency": of("one share", "one device", "step_median")
        / of("one share", "two independent processes", "step_median")
    }
    for way in dict.fromkeys(one["way"] for one in table if one["cores"] == 2):
        alone = "one device, XLA" if way.endswith("XLA") else "one device"
        found[way] = {"strong, speed-up": of("two shares", alone) / of("two shares", way)}
        if alone == "one device":
            found[way]["weak, efficiency"] = of("one share", alone) / of("two shares", way)
    single = next(one for one in table if one["S"] == "two shares" and one["way"] == "one device")
    of_nonzero = single["pass"] / single["nonzeros"]
    of_word = (single["step"] - single["pass"]) / single["words"]
    found["one core"] = {
        "nanoseconds per nonzero and topic": 1e9 * of_nonzero / TOPICS,
        "nanoseconds per word and topic": 1e9 * of_word / TOPICS,
    }
    return {
        name: rounded(one) if isinstance(one, dict) else float(f"{one:.6g}") for name, one in found.items()
    }


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def line(entry: dict[str, Any]) -> str:
    sizes = (max(entry["S_MB_each"]), max(entry["state_MB_each"]), entry["temporary_MB_each"])
    each = " + ".join(f"{size:.0f}" for size in sizes)
    return (
        f"{entry['S']:22} {entry['way']:26} {entry['step']:.3f} s a step"
        f" (median {entry['step_median']:.3f}, pass {entry['pass']:.3f}),"
        f" on each device {each} MB of S, state, temporaries; peak {entry['peak_GB']:.2f} GB"
    )


def plot(results: dict[str, Any], target: Path) -> None:
    plt = importlib.import_module("matplotlib.pyplot")
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4.4), width_ratios=[1.3, 1.2, 1])
    found = results["summary"]
    ways = [way for way, one in found.items() if isinstance(one, dict) and "strong, speed-up" in one][::-1]
    bars = left.barh(ways, [found[way]["strong, speed-up"] for way in ways], color="#4878a8")
    left.bar_label(bars, fmt="%.2f", padding=3)
    left.axvline(1, color="black", linewidth=1)
    left.axvline(
        2 * found["two independent processes, efficiency"], color="#e08030", label="two independent processes"
    )
    left.set_xlim(0, 2.3)
    left.set_xlabel("times as fast as one device on one core")
    left.set_title("strong scaling to two cores")
    left.legend(loc="upper right")
    stages = results["big"]["stages"]
    names = [one["stage"] for one in stages][::-1]
    middle.barh(names, [one["peak_GB"] for one in stages][::-1], color="#a8c4e0", label="peak")
    middle.barh(
        names, [one["after_GB"] for one in stages][::-1], height=0.4, color="#4878a8", label="after it"
    )
    middle.axvline(results["big"]["allowed_GB"], color="black", linewidth=1, label="allowed")
    middle.set_xlabel("GB resident")
    middle.set_title(f"{results['big']['nonzeros'] / 1e6:.0f} M nonzeros, stage by stage")
    middle.legend(loc="lower right")
    blocks = results["cuts"]["blocks"]
    D = [one["devices"] for one in blocks]
    right.plot(D, [one["slots_per_nonzero"] for one in blocks], "o-", label="slots per nonzero")
    right.plot(
        D, [one["largest_block_dealt"] for one in blocks], "s-", label="largest block over mean, dealt"
    )
    right.plot(D, [one["largest_block_in_runs"] for one in blocks], "^-", label="the same, in runs")
    right.set_xscale("log", base=2)
    right.set_yscale("log", base=2)
    right.set_xlabel("D")
    right.set_title("S in D x D blocks")
    right.legend(loc="upper left", fontsize="small")
    figure.tight_layout()
    figure.savefig(target, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute; writes nothing")
    quick = parser.parse_args().quick
    if (os.cpu_count() or 1) < 2:
        raise SystemExit("two cores are needed")
    began, small, load = time.perf_counter(), 20 if quick else 1, os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        table = scaling(folder, WORDS // (4 if quick else 1), NONZEROS // small, 1.0 if quick else 6.0)
    found = summary(table)
    print(json.dumps(found, indent=2), flush=True)
    bandwidth = rounded(ask({"what": "bandwidth", "megabytes": 100 if quick else 800}))
    print(bandwidth, flush=True)
    size = {"words": BIG_WORDS // small, "nonzeros": BIG_NONZEROS // small**2}
    cores = sorted(os.sched_getaffinity(0))
    big = rounded(
        ask({"what": "big", **size, "topics": TOPICS, "devices": 1, "cores": cores, "steps": BIG_STEPS})
    )
    print(
        json.dumps({name: big[name] for name in ("step", "peak_GB", "objective", "stages")}, indent=1),
        flush=True,
    )
    cuts = rounded(ask({"what": "cuts", **size, "blocks": BLOCKS[:5] if quick else BLOCKS}))
    print(cuts["accelerator"], flush=True)
    if quick:
        return
    results = {
        "command": "python experiments/scale/run.py",
        "seed": SEED,
        "topics": TOPICS,
        **machine(),
        "load_before": load,  # of others: above a few tenths, the seconds are not to be trusted
        **bandwidth,
        "scaling": table,
        "summary": found,
        "big": big,
        "cuts": cuts,
        "seconds": round(time.perf_counter() - began),
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    plot(results, HERE / "scale.png")
    print(f"{results['seconds']} s in all; python experiments/scale/plan.py writes plan.md anew")


def machine() -> dict[str, Any]:
    path = Path("/proc/cpuinfo")
    names = [line for line in path.read_text().splitlines() if "model name" in line] if path.exists() else []
    processor = names[0].split(":")[1].strip() if names else platform.processor()
    packages = ("dcdjax", "jax", "jaxlib", "numpy", "scipy")
    return {
        "machine": {"processor": processor, "cores": os.cpu_count(), "system": platform.platform()},
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
    }


if __name__ == "__main__":
    main()
