"""The command line, in a process of its own or in this one."""

import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from dcdjax.cli import main

# `nohup ... &` makes all processes ignore it, also the children.
heeds_ctrl_c = pytest.mark.skipif(
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN, reason="Ctrl-C is ignored in this process"
)


@contextmanager
def child(*command, **options):
    """A process that does not outlive the test, whatever happens."""
    process = subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def dcdjax_command(*arguments, **options):
    return run(sys.executable, "-m", "dcdjax", *map(str, arguments), **options)


def called(capsys, *arguments, code=0):
    """In this process, which need not wait for JAX again; what was printed."""
    assert main.main([str(argument) for argument in arguments]) == code
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    if code == 2:
        assert printed.out == ""
        assert len(printed.err.splitlines()) == 1
        assert printed.err.startswith(f"dcdjax {arguments[0]}: ")
    return printed.err if code == 2 else printed.out
