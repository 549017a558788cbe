"""Too little memory is said before a fit starts, and ends it when it runs out."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from problems import random_S

from dcdjax import fit
from dcdjax.fitting import memory
from dcdjax.fitting.memory import MemoryWarning

# Under a limit of 400 MB more than it has, with JAX warm, this process fits what needs 1.3 GB.
EXHAUSTED = """
import resource
import numpy as np, scipy.sparse, dcdjax
S = scipy.sparse.eye_array(20_000, format="csr")
options = {"start": "random", "max_steps": 50, "tol": 0.0, "progress": False}
dcdjax.fit(S[:20, :20], num_topics=2, **options)
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (400 << 20),) * 2)
try:
    dcdjax.fit(S, num_topics=2000, **options)
except MemoryError as error:
    print(error)
"""


def fitted(**options):
    S = random_S(np.random.default_rng(0), 30)
    return fit(S, num_topics=3, start="random", max_steps=2, tol=1e9, progress=False, **options)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_memory_that_runs_out_is_an_error_not_a_hang(cached):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", EXHAUSTED],
        capture_output=True, text=True, timeout=60, env={**cached, memory.SWITCH: "0"},
    )  # fmt: skip
    assert done.stdout.startswith("memory ran out: "), done.stderr
    assert "fewer topics (num_topics)" in done.stdout


def test_a_fit_that_cannot_succeed_is_refused_before_it_starts(monkeypatch):
    monkeypatch.setattr(memory, "host_available", lambda: (10e6, "the machine"))
    with pytest.raises(MemoryError, match=r"^30 words and 3 topics need about 73 MB .* leaves 10 MB. .*best"):
        fitted()
    monkeypatch.setenv(memory.SWITCH, "0")
    assert len(fitted()) == 30


def test_a_fit_that_may_not_succeed_is_warned_of(monkeypatch):
    monkeypatch.setattr(memory, "host_available", lambda: (60e6, "the machine"))
    with pytest.warns(
        MemoryWarning, match="3 topics need about 73 MB of memory, but the machine leaves 60 MB"
    ):
        fitted()
    monkeypatch.setattr(memory, "host_available", lambda: None)  # the system does not tell
    fitted()


def test_what_makes_a_fit_smaller_does_so():
    def bytes_of(topics=(500, 500, 500), num_words=20_000, **options):
        given = {"itemsize": 4, "start": "spectral", "combine": "consensus", **options}
        return memory.estimate(num_words, 5_000_000, topics, **given).on_host

    advice = [((200,) * 3, {}), ((500,) * 2, {}), ((500,) * 3, {"num_words": 10_000})]
    assert all(bytes_of(topics, **options) < bytes_of() for topics, options in advice)
    assert bytes_of(combine="best") < bytes_of() < bytes_of(combine="reduced")
    assert bytes_of(itemsize=8) > 1.5 * bytes_of()


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_containers(tmp_path, version):
    root = tmp_path / "cgroup"
    base = root / "memory" if version == 1 else root
    limit, used = ("limit_in_bytes", "usage_in_bytes") if version == 1 else ("max", "current")
    for folder, most in (("", 10_000), ("a", 1000), ("a/b", "max")):
        (base / folder).mkdir(parents=True, exist_ok=True)
        (base / folder / f"memory.{limit}").write_text(f"{most}\n")
        (base / folder / f"memory.{used}").write_text("700\n")
        (base / folder / "memory.stat").write_text("anon 1\ninactive_file 100\nactive_file 50\n")
    membership = tmp_path / "membership"
    membership.write_text("3:cpuset:/\n2:memory:/a/b\n" if version == 1 else "0::/a/b\n")
    found = dict.fromkeys(free for free, _ in memory.cgroup_limits(membership, root))
    assert sorted(found) == [450, 9450]
    membership.write_text("2:memory:/of/the/host\n" if version == 1 else "0::/of/the/host\n")
    assert [free for free, _ in memory.cgroup_limits(membership, root)] == [9450]
    assert list(memory.cgroup_limits(Path(tmp_path, "nowhere"), root)) == []


def test_this_machine_tells():
    if sys.platform == "linux":
        found = memory.host_available()
        assert found is not None
        assert found[0] > 0
