"""Downloads from a real server on this machine, which misbehaves in every way we know of."""

import contextlib
import errno
import hashlib
import http.server
import multiprocessing
import os
import socket
import threading
import time

import pytest

from dcdjax import download
from dcdjax.download import DownloadError, fetch

# Larger than a few chunks, and no piece of it like another.
CONTENT = b"".join(hashlib.sha256(bytes([n % 256, n // 256])).digest() for n in range(20_000))
OTHER = bytes(reversed(CONTENT))


class Server(http.server.ThreadingHTTPServer):
    """Answers each request by the next of `answers`, the last one again and again."""

    daemon_threads = True  # a stalling one does not keep the test from ending
    block_on_close = False

    def __init__(self, *answers):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = list(answers)
        self.requests = []  # their headers
        self.sent = []  # bytes of content sent, one number a request
        self.url = f"http://127.0.0.1:{self.server_address[1]}/corpus.zip"
        self.released = threading.Event()

    def handle_error(self, request, client_address):
        pass  # a client that hangs up is what is tested


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, format, *arguments):  # noqa: A002, the name it has there
        pass

    def do_GET(self):
        server = the_server(self)
        answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
        server.requests.append(dict(self.headers))
        server.sent.append(0)
        answer(self, len(server.requests) - 1)

    def write(self, number, data):
        the_server(self).sent[number] += len(data)  # before the client can be done
        self.wfile.write(data)
        self.wfile.flush()


def the_server(handler) -> Server:
    return handler.server


def serve(
    content=CONTENT,
    *,
    upto=None,
    tag: str | None = '"v1"',
    ranges=True,
    length=True,
    stall=False,
    shift=0,
    modified=None,
):
    """Answers with the content; `upto` bytes of it are sent, then the connection is cut or stalls."""

    def answer(handler, number):
        asked = handler.headers.get("Range") if ranges else None
        if handler.headers.get("If-Range") not in (None, tag, modified):
            asked = None
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if start >= len(content):
            handler.send_error(416)
            return
        start = max(0, start - shift) if asked else 0
        handler.send_response(206 if asked else 200)
        if asked:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if length:
            handler.send_header("Content-Length", str(len(content) - start))
        if tag:
            handler.send_header("ETag", tag)
        if modified:
            handler.send_header("Last-Modified", modified)
        handler.end_headers()
        handler.write(number, content[start : start + upto] if upto is not None else content[start:])
        if stall:
            the_server(handler).released.wait(30)

    return answer


def status(code):
    return lambda handler, number: handler.send_error(code)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


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
            stack.callback(server.released.set)
            return server

        yield start


@pytest.fixture
def target(tmp_path):
    return tmp_path / "folder" / "corpus.zip"


def is_content(path):
    if path.read_bytes() != CONTENT:
        raise ValueError("another content")


def get(server, target, **options):
    return fetch(server.url, target, **{"wait": 0.01, "timeout": 5.0, **options})


def files(target):
    return sorted(path.name for path in target.parent.iterdir())


def test_whole_file_and_its_progress(start, target):
    calls = []
    assert get(start(serve()), target, progress=lambda *call: calls.append(call)) == target
    assert target.read_bytes() == CONTENT
    assert files(target) == ["corpus.zip"]
    assert calls[0] == ("downloading corpus.zip", 0, len(CONTENT), "B")
    assert calls[-1] == ("downloading corpus.zip", len(CONTENT), len(CONTENT), "B")
    assert [call[1] for call in calls] == sorted(call[1] for call in calls)


def test_unknown_length(start, target):
    calls = []
    get(start(serve(length=False)), target, progress=lambda *call: calls.append(call))
    assert target.read_bytes() == CONTENT
    assert {call[2] for call in calls} == {None}


def test_cut_off_once_sends_only_what_is_missing(start, target):
    server = start(serve(upto=200_000), serve())
    get(server, target)
    assert target.read_bytes() == CONTENT
    assert server.sent == [200_000, len(CONTENT) - 200_000]
    assert server.requests[1]["Range"] == "bytes=200000-"
    assert server.requests[1]["If-Range"] == '"v1"'


def test_progress_goes_on_after_a_cut(start, target):
    calls = []
    get(start(serve(upto=200_000), serve()), target, progress=lambda *call: calls.append(call[1:3]))
    assert calls.count((200_000, len(CONTENT))) == 2
    assert calls[-1] == (len(CONTENT), len(CONTENT))


def test_weak_tag_is_not_trusted_but_the_date_is(start, target):
    date = "Mon, 01 Jan 2024 00:00:00 GMT"
    server = start(serve(upto=200_000, tag='W/"v1"', modified=date), serve(tag='W/"v1"', modified=date))
    get(server, target)
    assert target.read_bytes() == CONTENT
    assert server.requests[1]["If-Range"] == date
    assert server.sent[1] == len(CONTENT) - 200_000


def test_without_a_validator_pieces_are_joined_only_if_checked(start, target):
    server = start(serve(OTHER, upto=200_000, tag=None), serve(tag=None))
    get(server, target)
    assert target.read_bytes() == CONTENT
    assert "Range" not in server.requests[1]


def test_pieces_of_two_versions_are_refused_and_fetched_in_one(start, target):
    server = start(serve(OTHER, upto=200_000, tag=None), serve(tag=None))
    get(server, target, accept=is_content, attempts=2)
    assert target.read_bytes() == CONTENT
    assert server.sent == [200_000, len(CONTENT) - 200_000, len(CONTENT)]


@pytest.mark.parametrize("second", [serve(ranges=False), serve(tag='"v2"')], ids=["no ranges", "new version"])
def test_answer_from_the_beginning_starts_over(start, target, second):
    server = start(serve(OTHER, upto=200_000), second)
    get(server, target)
    assert target.read_bytes() == CONTENT
    assert server.sent == [200_000, len(CONTENT)]


def test_another_range_than_asked_for_is_not_appended(start, target):
    server = start(serve(upto=200_000), serve(shift=100), serve())
    get(server, target)
    assert target.read_bytes() == CONTENT
    assert len(server.requests) == 3


def test_cut_off_always(start, target):
    server = start(serve(upto=1000))
    with pytest.raises(DownloadError, match=rf"cut off after 3000 of {len(CONTENT)} bytes \(3 attempts\)"):
        get(server, target, attempts=3)
    assert len(server.requests) == 3
    assert files(target) == []


def test_waits_grow(start, target, monkeypatch):
    waits = []
    monkeypatch.setattr(download.time, "sleep", waits.append)
    with pytest.raises(DownloadError):
        get(start(serve(upto=0)), target, attempts=4, wait=0.5)
    assert waits == [0.5, 1.0, 2.0]


def test_stalls(start, target):
    server = start(serve(upto=1000, stall=True), serve())
    get(server, target, timeout=0.3)
    assert target.read_bytes() == CONTENT
    server.answers = [serve(upto=1000, stall=True)]
    target.unlink()
    with pytest.raises(DownloadError, match="timed out"):
        get(server, target, timeout=0.2, attempts=2)
    assert files(target) == []


def test_wrong_content(start, target):
    server = start(serve(OTHER))
    with pytest.raises(DownloadError, match="what arrived is not the file: another content"):
        get(server, target, accept=is_content)
    assert len(server.requests) == 1
    assert files(target) == []


@pytest.mark.parametrize(("code", "requests"), [(404, 1), (403, 1), (500, 2), (503, 2)])
def test_statuses(start, target, code, requests):
    server = start(status(code))
    with pytest.raises(DownloadError, match=f"the server answers {code}") as error:
        get(server, target, attempts=2, advice="Ask your grandmother.")
    assert server.url in str(error.value)
    assert str(error.value).endswith("Ask your grandmother.")
    assert len(server.requests) == requests
    assert files(target) == []


def test_passing_status(start, target):
    get(start(status(503), serve()), target)
    assert target.read_bytes() == CONTENT


def closed_port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}/corpus.zip"


def test_nobody_there_is_said_at_once(target):
    began = time.monotonic()
    with pytest.raises(DownloadError, match=r"no connection: .*refused"):
        fetch(closed_port(), target, wait=10.0)
    assert time.monotonic() - began < 5
    assert files(target) == []


def test_next_address(start, target):
    bad, good = start(serve(OTHER)), start(serve())
    fetch([closed_port(), bad.url, good.url], target, accept=is_content, wait=0.01)
    assert target.read_bytes() == CONTENT
    with pytest.raises(DownloadError) as error:
        fetch([closed_port(), bad.url], target, accept=is_content, wait=0.01)
    assert "refused" in str(error.value)
    assert "another content" in str(error.value)


def test_next_address_begins_anew(start, target):
    good = start(serve())
    fetch([start(serve(OTHER, upto=1000)).url, good.url], target, accept=is_content, wait=0.01)
    assert "Range" not in good.requests[0]
    assert len(good.requests) == 1


def test_old_target_stays_when_the_new_one_fails(start, target):
    get(start(serve()), target)
    with pytest.raises(DownloadError):
        get(start(serve(OTHER)), target, accept=is_content)
    assert target.read_bytes() == CONTENT


def test_full_disk(start, target, monkeypatch):
    class FullDisk(download.io.FileIO):
        def write(self, data):
            if self.tell() > 100_000:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(data[:1000])  # a short write is not the end

    server = start(serve())
    monkeypatch.setattr(download.io, "FileIO", FullDisk)
    with pytest.raises(DownloadError, match=r"cannot write .*No space left"):
        get(server, target)
    assert len(server.requests) == 1
    assert files(target) == []


def test_folder_that_cannot_be(start, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match=r"cannot write .*file/corpus.zip"):
        get(start(serve()), tmp_path / "file" / "corpus.zip")


def interrupt(error):
    def progress(stage, done, total, unit):
        if done > 100_000:
            raise error

    return progress


def test_interrupted_by_the_keyboard_goes_on_next_time(start, target):
    server = start(serve())
    with pytest.raises(KeyboardInterrupt):
        get(server, target, progress=interrupt(KeyboardInterrupt()))
    assert files(target) == ["corpus.zip.part"]
    there = (target.parent / "corpus.zip.part").stat().st_size
    get(server, target, accept=is_content)
    assert files(target) == ["corpus.zip"]
    assert server.sent[1] == len(CONTENT) - there < len(CONTENT)


def test_error_of_the_caller_leaves_nothing(start, target):
    with pytest.raises(ZeroDivisionError):
        get(start(serve()), target, progress=interrupt(ZeroDivisionError()))
    assert files(target) == []


def hang(url, target):
    fetch(url, target, timeout=30.0)


def killed_midway(server, target):
    # A new interpreter: a forked one would share the threads and locks of this one.
    process = multiprocessing.get_context("spawn").Process(target=hang, args=(server.url, target))
    process.start()
    part = target.with_name("corpus.zip.part")
    deadline = time.monotonic() + 60
    while not part.exists() or part.stat().st_size < 200_000:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def test_killed_process_is_gone_on_with(start, target):
    server = start(serve(upto=200_000, stall=True), serve())
    process = killed_midway(server, target)
    process.kill()
    process.join()
    get(server, target, accept=is_content)
    assert files(target) == ["corpus.zip"]
    assert server.sent == [200_000, len(CONTENT) - 200_000]


def test_part_of_something_else(start, target):
    target.parent.mkdir()
    for leftover, requests in [(b"x" * 1000, 2), (CONTENT, 2), (CONTENT + b"x", 2)]:
        target.with_name("corpus.zip.part").write_bytes(leftover)
        server = start(serve())
        get(server, target, accept=is_content)
        assert target.read_bytes() == CONTENT
        assert len(server.requests) == requests
        target.unlink()


def test_two_processes_at_once(start, target):
    server = start(serve(upto=200_000, stall=True), serve())
    process = killed_midway(server, target)
    get(server, target, accept=is_content)
    assert server.sent[1] == len(CONTENT)  # from the beginning, into a file of its own
    assert files(target) == ["corpus.zip", "corpus.zip.part"]
    server.released.set()  # the other one is cut off, goes on and comes to the same end
    process.join(60)
    assert process.exitcode == 0
    assert target.read_bytes() == CONTENT
    assert files(target) == ["corpus.zip"]


def test_file_that_was_finished_before_it_was_locked_is_left_alone(target, monkeypatch):
    target.parent.mkdir()
    part = target.with_name("corpus.zip.part")
    monkeypatch.setattr(download.fcntl, "flock", lambda file, operation: os.replace(part, target))
    assert download._claimed(part) is None


@pytest.mark.parametrize(
    ("urls", "options", "message"),
    [
        ("file:///etc/hostname", {}, "urls must begin with http:// or https://, got 'file:"),
        ([], {}, "urls is empty"),
        ("http://127.0.0.1/", {"attempts": 0}, "attempts must be at least 1, got 0"),
    ],
)
def test_wrong_arguments(target, urls, options, message):
    with pytest.raises(ValueError, match=message):
        fetch(urls, target, **options)
