"""Several processes as one: they meet or say who is missing, agree, and learn what one alone would."""

import contextlib
import hmac
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
from commands import heeds_ctrl_c
from problems import random_S

import dcdjax
from dcdjax import similarity
from dcdjax.devices import processes
from dcdjax.devices.processes import ProcessError
from dcdjax.devices.rendezvous import StrangerWarning
from dcdjax.fitting import fit as fitting


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- Meeting ----------------------------------------------------------------------------------------


def met(*calls, port=None, timeout=10.0, token=""):
    """What each of some processes, here threads, is told: (num_processes, rank) each."""
    port = port or free_port()
    outcomes: list[Any] = [None] * len(calls)

    def call(number, num_processes, rank):
        try:
            processes.wait_for_all("127.0.0.1", port, num_processes, rank, timeout, token)
        except ProcessError as error:
            outcomes[number] = str(error)

    threads = [threading.Thread(target=call, args=(n, *given)) for n, given in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return outcomes


def connected(port):
    """A connection to rank 0, once it listens."""
    for _ in range(500):
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), 10)
        time.sleep(0.02)
    raise AssertionError("rank 0 does not listen")


def greeting(line, token="", **settings):
    """What a process with these settings says to rank 0, which has sent its challenge."""
    challenge = line.makefile("rb").readline().strip()
    versions = {name: version(name) for name in ("dcdjax", "jax", "jaxlib")}
    text = json.dumps({"processes": 2, **versions, "challenge": "ours", **settings}).encode()
    return hmac.digest(token.encode(), challenge + b" " + text, "sha256").hex().encode() + b" " + text + b"\n"


@pytest.mark.parametrize("number", [1, 2, 5])
def test_all_meet(number):
    assert met(*[(number, rank) for rank in reversed(range(number))]) == [None] * number


def test_the_port_is_free_afterwards():
    port = free_port()
    for _ in range(3):
        assert met((2, 0), (2, 1), port=port) == [None, None]


def test_who_is_missing():
    said = met((4, 0), (4, 2), timeout=1.0)
    assert all(text and text.startswith("rank 1, 3 of 4 did not connect to 127.0.0.1:") for text in said), (
        said
    )
    assert all(text.endswith("within 1 s") for text in said)
    (said,) = met((2, 1), timeout=1.0)
    assert said.startswith("rank 0 does not answer at 127.0.0.1:")


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        (((3, 0), (3, 1), (3, 1)), "rank 1 of 3 connected twice"),
        (((2, 0), (3, 1)), "processes: 2 on rank 0, but 3 on rank 1"),
        (((2, 0), (5, 4)), "rank 4 connected, but rank 0 was started for 2 processes"),
    ],
)
def test_who_is_wrong(calls, said):
    assert met(*calls) == [said] * len(calls)


def test_another_version():
    port, outcome = free_port(), []
    first = threading.Thread(target=lambda: outcome.extend(met((2, 0), port=port)))
    first.start()
    with connected(port) as line:
        line.sendall(greeting(line, rank=1, dcdjax="0.0.1\x1b[2J"))
        code, _, text = line.makefile("rb").readline().strip().partition(b" ")
    first.join(20)
    assert hmac.digest(b"", b"ours " + text, "sha256").hex().encode() == code
    assert outcome == [json.loads(text)["error"]]
    # What another process says cannot move the cursor.
    assert outcome[0].startswith("dcdjax: ")
    assert outcome[0].endswith(r", but 0.0.1\x1b[2J on rank 1")


def overheard(*noises: Any, token="", held=()):
    """What two processes are told if strangers connect first, who say this, or nothing and stay."""
    port, outcomes = free_port(), []
    first = threading.Thread(target=lambda: outcomes.extend(met((2, 0), port=port, token=token)))
    first.start()
    with contextlib.ExitStack() as stack:
        for _ in held:
            stack.enter_context(connected(port))
        for noise in noises:
            with connected(port) as line:
                said: Any = noise(line) if callable(noise) else noise
                line.sendall(said)
                line.shutdown(socket.SHUT_WR)
                with contextlib.suppress(OSError):
                    while line.recv(4096):  # until rank 0 has dropped it
                        pass
        began = time.monotonic()
        outcomes += met((2, 1), port=port, token=token)
        first.join(20)
    return outcomes, time.monotonic() - began


@pytest.mark.filterwarnings("ignore::dcdjax.devices.rendezvous.StrangerWarning")
def test_strangers_are_not_heard():
    noises: list[Any] = [
        b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b"{}\n", b"x" * 9000, b"", b'{"rank": 9}\n', b"[" * 4000 + b"\n",
        lambda line: greeting(line, rank=9),
        lambda line: greeting(line, token="another", rank=1),
    ]  # fmt: skip
    assert overheard(*noises, token="ours")[0] == [None, None]
    no_settings = [
        lambda line: greeting(line, rank=float("inf")),
        lambda line: greeting(line, rank=1, challenge=5),
        lambda line: greeting(line, rank=1, x="x" * 5000),
    ]
    assert overheard(*no_settings)[0] == [None, None]


@pytest.mark.filterwarnings("ignore::dcdjax.devices.rendezvous.StrangerWarning")
def test_strangers_who_say_nothing_do_not_take_the_time():
    outcomes, seconds = overheard(held=range(150))
    assert outcomes == [None, None]
    assert seconds < 5


def test_of_strangers_one_line_is_said():
    with pytest.warns(
        StrangerWarning, match=r"^a connection from 127.0.0.1 to .* was dropped: .*TOKEN"
    ) as said:
        overheard(*[b"\x1b[2J nonsense\n"] * 3)
    assert len(said) == 1
    assert "\x1b" not in str(said[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert overheard(b"nonsense\n")[0] == [None, None]


@pytest.mark.filterwarnings("ignore::dcdjax.devices.rendezvous.StrangerWarning")
def test_another_token():
    port, said = free_port(), []
    first = threading.Thread(target=lambda: said.extend(met((2, 0), port=port, timeout=1.0, token="ours")))
    first.start()
    said += met((2, 1), port=port, timeout=1.0, token="theirs")
    first.join()
    assert sorted(text.partition(":")[0] for text in said) == [
        "rank 0 does not answer at 127.0.0.1", "rank 1 of 2 did not connect to 127.0.0.1"
    ]  # fmt: skip
    assert any("it does not have our DCDJAX_TOKEN" in text for text in said)


def test_only_the_address_of_the_coordinator_listens():
    port = free_port()
    first = threading.Thread(target=lambda: met((2, 0), port=port, timeout=1.0))
    first.start()
    with connected(port), pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", port), 5)
    first.join()


def test_who_has_given_up_may_come_again():
    port, outcomes = free_port(), []
    first = threading.Thread(target=lambda: outcomes.extend(met((3, 0), port=port, timeout=30.0)))
    first.start()
    with connected(port) as gone:
        gone.sendall(greeting(gone, rank=1, processes=3))
        time.sleep(0.2)
    outcomes += met((3, 1), (3, 2), port=port, timeout=30.0)
    first.join()
    assert outcomes == [None] * 3


def test_a_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (said,) = met((2, 0), port=port)
    assert said.startswith(f"coordinator 127.0.0.1:{port}: ")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("h:1", 2, None), "rank is missing"),
        ((None, 2, 0), "coordinator is missing"),
        (("h:1", 0, 0), "num_processes must be at least 1"),
        (("h:1", 2, 2), "rank must be from 0 to 1, got 2"),
        (("h", 2, 0), "coordinator must be HOST:PORT, got 'h'"),
        (("h:x", 2, 0), "coordinator must be HOST:PORT"),
        (("h:70000", 2, 0), "coordinator must be HOST:PORT"),
        ((None, None, None), "no environment variable names a cluster"),
    ],
)
def test_wrong_arguments(given, said, monkeypatch):
    for name in processes.CLUSTERS:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=said):
        processes.join(*given)
    monkeypatch.delenv(processes.TOKEN, raising=False)
    with pytest.raises(
        ValueError, match=f"variable {processes.TOKEN} is missing: others can reach .* 192.0.2.1:1"
    ):
        processes.join("192.0.2.1:1", 2, 1)
    with pytest.raises(ValueError, match="must be the address of one network, got '0\\.0\\.0\\.0', which"):
        processes.join("0.0.0.0:1", 2, 0)
    with pytest.raises(ValueError, match="timeout must be at least a second"):
        processes.join("h:1", 2, 0, timeout=0.5)


def test_alone():
    assert processes.count() == 1
    assert processes.is_first()
    np.testing.assert_array_equal(processes.allgather([np.pi, 1e300]), [[np.pi, 1e300]])
    processes.check_agreement({"a": 1})
    assert processes.any_and_first(True, 7) == (True, 7)


# --- Working ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def matrix(tmp_path_factory):
    path = tmp_path_factory.mktemp("several") / "S.npz"
    S = random_S(np.random.default_rng(0), 61)
    similarity.from_matrix(S, words=[f"w{n}" for n in range(61)]).save(path)
    return path


def started(*arguments, **environment):
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip


def finished(running, timeout=120):
    try:
        return [(*one.communicate(timeout=timeout), one.returncode) for one in running]
    finally:
        for one in running:
            one.kill()


def fitted(number, source, folder, *options, changed=()):
    """`dcdjax fit` in so many processes; `changed` are options of the last one alone."""
    port = free_port()
    running = [
        started("-m", "dcdjax", "fit", *source, "-o", folder, "--json", "--quiet", *options,
                "--coordinator", f"127.0.0.1:{port}", "--processes", number, "--rank", rank,
                *(changed if rank == number - 1 else ()))
        for rank in range(number)
    ]  # fmt: skip
    return finished(running)


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 3])
def test_they_learn_what_one_learns(number, matrix, tmp_path):
    options = ("--topics", "4", "--restarts", "2", "--start", "random", "--max-steps", "40", "--tol", "0.001")
    done = fitted(number, ("--matrix", matrix), tmp_path / "model", *options, "--timeout", "60")
    assert [code for *_, code in done] == [0] * number, done
    assert [out for out, *_ in done[1:]] == [""] * (number - 1)
    assert "goes on from step" not in done[0][1]  # there is no checkpoint
    record = json.loads(done[0][0])
    assert (record["num_processes"], record["num_devices"]) == (number, number)
    many = dcdjax.Embedding.load(tmp_path / "model")
    with pytest.warns(fitting.NotConvergedWarning):
        one = dcdjax.fit(similarity.load(matrix), num_topics=4, restarts=2, start="random", max_steps=40,
                         key=0, progress=False)  # fmt: skip
    assert many.words == one.words
    np.testing.assert_allclose(many.W, one.W, atol=1e-5)
    assert record["num_steps"] == one.record["num_steps"]
    np.testing.assert_allclose(record["objective"], one.record["objective"], rtol=1e-5)


@pytest.mark.slow
def test_each_loads_its_share(matrix):
    code = f"""
import os, sys; rank = int(sys.argv[1])
os.environ["DCDJAX_CORES"] = str(1 + rank)  # machines may differ
import dcdjax
from dcdjax.devices import processes
from dcdjax import similarity
processes.join("127.0.0.1:{free_port()}", 2, rank)
import jax, mmap, numpy as np
jax.config.update("jax_enable_x64", True)
S = similarity.load({str(matrix)!r}, mapped=True)
for array in (S.matrix.data, S.matrix.indices):
    while not isinstance(array, mmap.mmap):
        array = array.base
asked, kind = [], type(S.matrix)
get = kind.__getitem__
def noted(self, key):
    if self is S.matrix:
        asked.append((key.start, key.step))
    return get(self, key)
kind.__getitem__ = noted
from dcdjax.devices import sharding
sharding.CHUNK_BYTES = processes.CHUNK_BYTES = 1000  # gathered and sent in several pieces
parts = dcdjax.prepare(S, dtype=np.float64)
assert asked == [(rank, 2)], asked
kind.__getitem__ = get
(segments,) = parts.pieces
(shard,) = segments.values.addressable_shards
own = similarity.load({str(matrix)!r}).matrix[rank::2]
np.testing.assert_allclose(np.asarray(shard.data).sum() * float(parts.scale), own.sum())
import dcdjax
W = np.random.default_rng(0).dirichlet(np.ones(3), 61)
solution = dcdjax.solve(W, parts, tol=0.0, max_steps=20)
one = dcdjax.solve(W, similarity.load({str(matrix)!r}), tol=0.0, max_steps=20, devices=jax.local_devices())
np.testing.assert_allclose(solution.W, one.W, atol=1e-10)
given = {{"a": np.arange(500.0).reshape(5, 100), "b": np.zeros((0, 3)), "c": np.float32(2.5)[None]}}
found = processes.broadcast(given if rank == 0 else {{}})
for name, array in given.items():
    np.testing.assert_array_equal(found[name], array)
    assert found[name].dtype == array.dtype
def fails():
    raise TypeError("no " + chr(0xdcff))
try:
    processes.run_on_first(fails)
except (TypeError, processes.ProcessError) as error:
    assert isinstance(error, TypeError) == (rank == 0)
    assert rank == 0 or str(error).startswith("rank 0: no")
else:
    raise AssertionError
"""
    for _, error, status in finished([started("-c", code, rank) for rank in (0, 1)]):
        assert status == 0, error


def test_processes_that_were_told_different_things(matrix, tmp_path):
    done = fitted(2, ("--matrix", matrix), tmp_path / "model", "--topics", "4", changed=("--seed", "3"))
    for _, error, status in done:
        assert status == 3
        assert "rank 0 and rank 1 were started with different settings: key: [0, 0] and [0, 3]" in error
    assert not (tmp_path / "model").exists()


def test_a_peer_that_does_not_come(matrix, tmp_path):
    began = time.monotonic()
    (done,) = finished([
        started("-m", "dcdjax", "fit", "--matrix", matrix, "-o", tmp_path / "model", "--timeout", 2,
                "--coordinator", f"127.0.0.1:{free_port()}", "--processes", 2, "--rank", 0)
    ])  # fmt: skip
    assert done[2] == 3
    assert "dcdjax fit: rank 1 of 2 did not connect to 127.0.0.1:" in done[1]
    assert time.monotonic() - began < 60


ENDLESS = """
import sys; rank, port = sys.argv[1:3]
from dcdjax.devices import processes
from dcdjax import similarity
processes.join(f"127.0.0.1:{port}", 2, int(rank), timeout=5)
import dcdjax
def tell(stage, done, *_):
    if stage == "solving" and done > 5:
        print("solving", flush=True)
S = similarity.load(sys.argv[3])
embedding = dcdjax.fit(S, num_topics=4, key=0, tol=0.0, max_steps=10**6, progress=tell)
print(embedding.record["num_steps"], embedding.record["interrupted"])
"""


@pytest.mark.slow
def test_a_run_of_several_goes_on(matrix, tmp_path):
    options = ("--topics", "4", "--start", "random", "--max-steps", "1000", "--tol", "0", "--json", "--quiet",
               "--checkpoint", tmp_path / "checkpoint", "--checkpoint-every", "0")  # fmt: skip
    source = ("-m", "dcdjax", "fit", "--matrix", matrix, "-o", tmp_path / "model")
    port = free_port()
    running = [
        started(*source, *options, "--timeout", 5,
                "--coordinator", f"127.0.0.1:{port}", "--processes", 2, "--rank", rank)
        for rank in (0, 1)
    ]  # fmt: skip
    until = time.monotonic() + 100
    while not list((tmp_path / "checkpoint").glob("checkpoint-start*.safetensors")):
        assert time.monotonic() < until
        time.sleep(0.02)
    running[1].kill()
    out, error, status = finished(running)[0]
    assert (out, status) == ("", 3), error
    assert "lost the connection to another process" in error
    done = fitted(2, ("--matrix", matrix), tmp_path / "model", *options)
    assert [status for *_, status in done] == [0, 0], done
    record = json.loads(done[0][0])
    assert 0 < record["resumed_at"] < 1000
    assert record["num_steps"] == [1000]
    with pytest.warns(fitting.NotConvergedWarning):
        one = dcdjax.fit(similarity.load(matrix), num_topics=4, start="random", max_steps=1000, tol=0.0,
                         key=0, progress=False)  # fmt: skip
    np.testing.assert_allclose(record["objective"], one.record["objective"], rtol=1e-6)
    np.testing.assert_allclose(dcdjax.Embedding.load(tmp_path / "model").W, one.W, atol=1e-4)
    wrong = fitted(2, ("--matrix", matrix), tmp_path / "model", *options, "--seed", "1")
    assert [status for *_, status in wrong] == [2, 3]
    assert all("is of another run: key is [0, 1], there it is [0, 0]" in error for _, error, _ in wrong), (
        wrong
    )


@pytest.fixture
def endless(matrix):
    """Two processes that will not end by themselves, and have begun."""
    port = free_port()
    running = [started("-c", ENDLESS, rank, port, matrix) for rank in (0, 1)]
    for one in running:
        assert one.stdout is not None
        assert one.stdout.readline() == "solving\n"
    yield running
    for one in running:
        one.kill()
        one.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_peer_that_is_lost(number, endless):
    endless[1].send_signal(number)
    _, error = endless[0].communicate(timeout=100)
    assert endless[0].returncode != 0
    if number == signal.SIGKILL:
        assert "rank 0 lost the connection to another process" in error


@heeds_ctrl_c
@pytest.mark.slow
def test_an_interruption_of_one_is_one_of_all(endless):
    endless[1].send_signal(signal.SIGINT)
    done = finished(endless)
    assert [code for *_, code in done] == [0, 0], done
    last = [out.splitlines()[-1] for out, *_ in done]
    assert last[0] == last[1]
    assert last[0].endswith(" True")
