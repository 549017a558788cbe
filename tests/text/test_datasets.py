"""Corpora by name. A small one with two splits stands in for those of the network: a server here has it."""

import contextlib
import gzip
import hashlib
import http.server
import io
import multiprocessing
import os
import socket
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest
import requests

from dcdjax.text import datasets, python_docs
from dcdjax.text.datasets import DownloadError

TEXTS = {"train": b"a rose is a rose\n" * 5000, "test": "Rosen für Gertrude\n".encode() * 100}
LOCAL_NAMES = ["train.txt.gz", "train.txt", "roses.train.tokens.gz", "roses.train.tokens"]


def sha256(text):
    return hashlib.sha256(text).hexdigest()


def drip(handler):
    """Answers with a byte now and then, for ever."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"x")
        threading.Event().wait(0.02)


def encrypted(content):
    """The archive, as if it had a password: by the flags of its members."""
    content = bytearray(content)
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        found = content.find(signature)
        while found >= 0:
            content[found + offset] |= 1
            found = content.find(signature, found + 4)
    return bytes(content)


def packed(texts, compression=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for split, text in texts.items():
            archive.writestr(f"roses/roses.{split}.tokens", text)
    return file.getvalue()


class Server(http.server.ThreadingHTTPServer):
    """Answers each request by the next of `answers`, the last one again and again."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *answers):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = list(answers)
        self.num_requests = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}/corpus.zip"

    def handle_error(self, request, client_address):
        pass  # a client that hangs up is what is tested


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, format, *arguments):  # noqa: A002, the name it has there
        pass

    def do_GET(self):
        server: Any = self.server
        server.num_requests += 1
        answers = server.answers
        (answers.pop(0) if len(answers) > 1 else answers[0])(self)


def serve(content, *, num_sent=None, length=True):
    """Answers with the content; the connection is cut after `num_sent` bytes of it."""

    def answer(handler):
        handler.send_response(200)
        if length:
            handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[:num_sent])

    return answer


def status(code):
    return lambda handler: handler.send_error(code)


def closed_port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}/corpus.zip"


@pytest.fixture
def start():
    with contextlib.ExitStack() as stack:

        def start(*answers):
            server = Server(*answers)
            thread = threading.Thread(
                target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
            )
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            return server

        yield start


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.delenv("DCDJAX_DATA", raising=False)
    monkeypatch.setenv("DCDJAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between two attempts


@pytest.fixture
def known(monkeypatch):
    """Makes "roses" a known name, to be had at these addresses."""

    def known(*urls):
        texts = {
            split: datasets.ZippedText(f"roses/roses.{split}.tokens", len(text), sha256(text))
            for split, text in TEXTS.items()
        }
        source = datasets.Source(urls or (closed_port(),), texts)
        monkeypatch.setitem(datasets.SOURCES, "roses", source)

    known()
    return known


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def test_names():
    assert datasets.names() == ["python-docs", "text8", "wikitext-2"]


@pytest.mark.parametrize(
    ("name", "split", "message"),
    [
        (
            "wikitext2",
            "train",
            r"name must be one of 'python-docs', .*, got 'wikitext2'; did you mean wikitext-2",
        ),
        ("zzz", "train", r"name must be one of .*, got 'zzz'$"),
        ("wikitext-2", "tests", r"split must be one of .*, got 'tests'; did you mean test"),
        ("text8", "valid", r"split must be one of 'train', got 'valid'$"),
        ("python-docs", "valid", r"split must be one of 'train', got 'valid'$"),
    ],
)
def test_unknown_names(name, split, message):
    with pytest.raises(ValueError, match=message):
        datasets.load(name, split=split)


@pytest.mark.parametrize("name", LOCAL_NAMES)
@pytest.mark.parametrize("by", ["argument", "environment"])
def test_local_file(known, tmp_path, monkeypatch, name, by):
    path = write(tmp_path / "data" / "roses" / name, TEXTS["train"])
    if by == "environment":
        monkeypatch.setenv("DCDJAX_DATA", str(tmp_path / "data"))
    found = datasets.load("roses", folder=tmp_path / "data" if by == "argument" else None)
    assert found == datasets.Dataset("roses", path, sha256(TEXTS["train"]), len(TEXTS["train"]), "local")
    assert os.fspath(found) == str(path)
    assert Path(found) == path
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("name", LOCAL_NAMES)
def test_local_file_of_another_text_is_refused(known, tmp_path, name):
    path = write(tmp_path / "data" / "roses" / name, b"a rose is a tulip\n")
    with pytest.raises(ValueError, match="is another text") as error:
        datasets.load("roses", folder=tmp_path / "data")
    for part in (path, sha256(b"a rose is a tulip\n"), sha256(TEXTS["train"])):
        assert str(part) in str(error.value)


@pytest.mark.parametrize("damage", [lambda whole: whole[:-100], lambda whole: b"no gzip at all"])
def test_damaged_local_gzip_is_refused(known, tmp_path, damage):
    path = write(tmp_path / "roses" / "train.txt.gz", TEXTS["train"])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"train.txt.gz is damaged"):
        datasets.load("roses", folder=tmp_path)


def test_folder_that_is_not_there(known, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"folder is not a folder: '.*nowhere'"):
        datasets.load("roses", folder=tmp_path / "nowhere")


def test_download_then_cache(known, start, tmp_path):
    server = start(serve(packed(TEXTS)))
    known(server.url)
    calls = []
    first = datasets.load("roses", progress=lambda *call: calls.append(call))
    assert (first.origin, first.path) == ("download", tmp_path / "cache" / "roses" / "train.txt")
    assert first.path.read_bytes() == TEXTS["train"]
    assert calls[-1] == ("downloading corpus.zip", len(packed(TEXTS)), len(packed(TEXTS)), "B")

    again, other = datasets.load("roses"), datasets.load("roses", split="test")
    assert (again.origin, other.origin) == ("cache", "cache")
    assert other.path.read_bytes() == TEXTS["test"]
    assert (other.sha256, other.num_bytes) == (sha256(TEXTS["test"]), len(TEXTS["test"]))
    assert server.num_requests == 1
    # The zip and all parts are gone.
    assert sorted(path.name for path in first.path.parent.iterdir()) == ["test.txt", "train.txt"]


def test_progress_is_told_from_zero_to_the_end(known, start):
    content = packed(TEXTS, zipfile.ZIP_STORED)  # more than one chunk
    known(start(serve(content)).url)
    calls = []
    datasets.load("roses", progress=lambda *call: calls.append(call))
    assert {(stage, total, unit) for stage, _, total, unit in calls} == {
        ("downloading corpus.zip", len(content), "B")
    }
    done = [call[1] for call in calls]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, len(content))
    assert len(set(done)) > 2


def test_unknown_length(known, start):
    known(start(serve(packed(TEXTS), length=False)).url)
    calls = []
    assert datasets.load("roses", progress=lambda *call: calls.append(call)).origin == "download"
    assert {call[2] for call in calls} == {None}
    assert calls[-1][1] > 0


def test_nothing_is_printed(known, start, capfd):
    known(start(status(503), serve(packed(TEXTS))).url)
    datasets.load("roses")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("first", [status(503), serve(packed(TEXTS), num_sent=100)], ids=["503", "cut off"])
def test_second_attempt(known, start, first):
    server = start(first, serve(packed(TEXTS)))
    known(server.url)
    calls = []
    datasets.load("roses", progress=lambda *call: calls.append(call))
    assert server.num_requests == 2
    assert calls[-1][1:3] == (len(packed(TEXTS)), len(packed(TEXTS)))


@pytest.mark.parametrize(
    ("answer", "message"),
    [(status(404), "404"), (serve(packed(TEXTS), num_sent=100), r"100 bytes read")],
    ids=["404", "cut off"],
)
def test_server_that_never_gives_the_file(known, start, tmp_path, answer, message):
    server = start(answer)
    known(server.url)
    with pytest.raises(DownloadError, match=message) as error:
        datasets.load("roses")
    assert server.url in str(error.value)
    assert list((tmp_path / "cache" / "roses").iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_interrupted_download_leaves_nothing(known, start, tmp_path, error):
    known(start(serve(packed(TEXTS, zipfile.ZIP_STORED))).url)

    def interrupt(stage, done, *others):
        if done:
            raise error

    with pytest.raises(error):
        datasets.load("roses", progress=interrupt)
    assert list((tmp_path / "cache" / "roses").iterdir()) == []
    assert datasets.load("roses").path.read_bytes() == TEXTS["train"]


def load_in_another_process(sources, cache, started):
    datasets.SOURCES.update(sources)
    started.wait(60)
    found = datasets.load("roses", cache=cache)
    assert found.path.read_bytes() == TEXTS["train"]


def test_several_processes_at_once(known, start, tmp_path):
    known(start(serve(packed(TEXTS, zipfile.ZIP_STORED))).url)
    # New interpreters: forked ones would share the threads and locks of this one.
    context = multiprocessing.get_context("spawn")
    started = context.Barrier(2)
    sources = {"roses": datasets.SOURCES["roses"]}
    arguments = (sources, tmp_path / "cache", started)
    processes = [context.Process(target=load_in_another_process, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    folder = tmp_path / "cache" / "roses"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        f"{split}.txt": text for split, text in TEXTS.items()
    }


def test_damaged_cache_is_replaced(known, start):
    known(start(serve(packed(TEXTS))).url)
    path = datasets.load("roses").path
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert datasets.load("roses").origin == "download"
    assert path.read_bytes() == TEXTS["train"]


def test_local_goes_before_cache_and_cache_before_network(known, start, tmp_path):
    known(start(serve(packed(TEXTS))).url)
    datasets.load("roses")
    known()  # no network any more
    assert datasets.load("roses", folder=tmp_path).origin == "cache"
    write(tmp_path / "roses" / "train.txt", TEXTS["train"])
    assert datasets.load("roses", folder=tmp_path).origin == "local"


def test_mirror_may_pack_differently(known, start):
    known(start(status(404)).url, start(serve(packed(TEXTS, zipfile.ZIP_STORED))).url)
    assert datasets.load("roses").path.read_bytes() == TEXTS["train"]


def corrupted(content):
    middle = len(content) // 3
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>please log in</html>", "not the expected zip archive: File is not a zip file"),
        (packed({"train": TEXTS["train"]}), "not the expected zip archive: .*roses.test.tokens"),
        (
            packed({**TEXTS, "train": TEXTS["train"].swapcase()}),
            "SHA-256 .*, expected " + sha256(TEXTS["train"]),
        ),
        (packed({**TEXTS, "test": b"x"}), f"roses.test.tokens does not have {len(TEXTS['test'])} bytes"),
        (corrupted(packed(TEXTS)), "not the expected zip archive"),
        (encrypted(packed(TEXTS)), "corpus.zip: not the expected zip archive: .*encrypted"),
    ],
    ids=["no zip", "member missing", "other text", "other size", "corrupted", "encrypted"],
)
def test_wrong_zip(known, start, tmp_path, content, message):
    known(start(serve(content)).url)
    with pytest.raises(DownloadError, match=message):
        datasets.load("roses")
    for path in (tmp_path / "cache" / "roses").iterdir():
        assert path.read_bytes() == TEXTS[path.stem]  # what came before the wrong member


@pytest.mark.parametrize("length", [True, False])
def test_a_file_that_is_too_large_is_not_read(known, start, monkeypatch, length):
    monkeypatch.setattr(datasets, "_MAX_OVERHEAD", 0)
    server = start(serve(bytes(10_000_000), length=length))
    known(server.url)
    seen = []
    with pytest.raises(DownloadError, match=r"the file has \d+ bytes, more than 8\d{4}"):
        datasets.load("roses", progress=lambda _, done, *more: seen.append(done))
    assert max(seen, default=0) < 100_000


def test_a_server_that_drips_does_not_hold_us(known, start, monkeypatch, tmp_path):
    monkeypatch.setattr(datasets, "_TIMEOUT", 0.2)
    known(start(drip).url)
    with pytest.raises(DownloadError, match="it sends less than 10000 bytes a second"):
        datasets.load("roses")
    assert list((tmp_path / "cache" / "roses").iterdir()) == []


def test_no_way_from_https_to_http(known, start, monkeypatch):
    server, get = start(serve(packed(TEXTS))), requests.get
    monkeypatch.setattr(requests, "get", lambda url, **more: get(server.url, **more))  # as if redirected
    known("https://example.org/corpus.zip")
    with pytest.raises(DownloadError, match=f"leads to an address without https, {server.url}"):
        datasets.load("roses")


def test_no_network_says_what_to_do(known, tmp_path):
    with pytest.raises(DownloadError, match=r"roses/test.txt into a folder.* DCDJAX_DATA") as error:
        datasets.load("roses", split="test")
    assert "http://127.0.0.1" in str(error.value)
    assert list((tmp_path / "cache" / "roses").iterdir()) == []


@pytest.mark.parametrize("name", ["roses", "python-docs"])
def test_cache_that_cannot_be_written(known, start, tmp_path, monkeypatch, name):
    monkeypatch.setattr(python_docs, "build", lambda progress: pytest.fail("built in vain"))
    known(start(serve(packed(TEXTS))).url)
    (tmp_path / "file").write_text("")
    with pytest.raises(
        OSError, match=r"cannot write into the cache .*file.*environment variable DCDJAX_CACHE"
    ):
        datasets.load(name, cache=tmp_path / "file")
    (tmp_path / "closed").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # whoever tests may be root
    with pytest.raises(OSError, match=r"cannot write into the cache .*closed.*no permission"):
        datasets.load(name, cache=tmp_path / "closed")


def test_built_in_is_made_once(monkeypatch, tmp_path):
    calls = []

    def build(progress):
        calls.append(progress)
        return "schön ist die prosa\n"

    monkeypatch.setattr(python_docs, "build", build)
    text = "schön ist die prosa\n".encode()
    first, second = datasets.load("python-docs"), datasets.load("python-docs", folder=tmp_path)
    assert first == second
    assert first.path.read_bytes() == text
    assert (first.sha256, first.num_bytes, first.origin) == (sha256(text), len(text), "built in")
    assert len(calls) == 1

    first.path.write_bytes(b"damaged")
    assert datasets.load("python-docs").path.read_bytes() == text
    monkeypatch.setattr(python_docs, "fingerprint", lambda: "another")
    assert datasets.load("python-docs").path != first.path
    assert len(calls) == 3


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no permissions")
def test_what_another_user_can_have_written_is_built_again(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(python_docs, "build", lambda progress: calls.append(0) or "text\n")
    old_mask = os.umask(0)
    try:
        path = datasets.load("python-docs").path
    finally:
        os.umask(old_mask)
    for one, mode in ((path, 0o600), (path.parent, 0o700), (tmp_path / "cache", 0o700)):
        assert one.stat().st_mode & 0o777 == mode
    planted = path.with_name(path.name.replace(sha256(b"text\n")[:16], sha256(b"other\n")[:16]))
    planted.write_bytes(b"other\n")
    planted.chmod(0o666)
    path.parent.chmod(0o777)
    path.unlink()
    found = datasets.load("python-docs")
    assert (found.path, found.sha256, len(calls)) == (path, sha256(b"text\n"), 2)


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {"DCDJAX_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}, "/own"),
        ("linux", {"XDG_CACHE_HOME": "/xdg"}, "/xdg/dcdjax"),
        ("linux", {"HOME": "/me"}, "/me/.cache/dcdjax"),
        ("darwin", {"HOME": "/me"}, "/me/Library/Caches/dcdjax"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/dcdjax"),
    ],
)
def test_usual_place_of_the_cache(monkeypatch, platform, variables, folder):
    for variable in ("DCDJAX_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert datasets.cache_folder() == Path(folder)


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_real_wikitext(data, split):
    found = datasets.load("wikitext-2", split=split, folder=data)
    assert found.origin == "local"
    with gzip.open(found) if found.path.suffix == ".gz" else open(found, "rb") as file:
        assert len(file.read()) == found.num_bytes
