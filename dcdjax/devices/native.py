"""Compute a pass over S and an exact step in C, if the machine has a C compiler.

`native.c` is compiled on first use and kept in the cache folder. What another user can have written there is
not loaded. Without a compiler, `available` returns
False and `reason` says why; the rest of the package works without this module. The environment variable
DCDJAX_NATIVE=0 switches it off.
"""

import ctypes
import functools
import hashlib
import importlib.resources
import importlib.util
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dcdjax.method.decomposition import Sums, Weights
from dcdjax.util import trust
from dcdjax.util.files import atomic_write, cache_folder
from dcdjax.util.warn import warn

TARGETS = {"float32": "dcdjax_segments_pass_f32", "float64": "dcdjax_segments_pass_f64"}
_STEP = "dcdjax_exact_step_f32"

# Not -ffast-math: the solver relies on NaN, and the start-up code of that flag flushes subnormal numbers in
# all threads. -fno-trapping-math lets the compiler vectorize loops with conditions.
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-pthread",
          "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")  # fmt: skip
# First for this very processor. A compiler that does not know the flag builds for any processor of its kind.
_PROCESSOR_FLAGS = (("-march=native",), ())
# A process waits this long for all compilers together.
BUILD_SECONDS = 30.0
_NO_COMPILER = "No C compiler is found: neither $CC nor cc, gcc, clang, nor the Python package ziglang."

_lock = threading.Lock()


class BuildError(Exception):
    """Signal that a compiler made no usable library; the message is that of the compiler."""


def available() -> bool:
    """Return whether the kernel can be used. The first call of a process loads it, or builds it if needed."""
    return _load_once()[0]


def reason() -> str:
    """Return a sentence that names the compiler of the kernel, or says why there is no kernel."""
    return _load_once()[1]


def segments_pass(
    W: Weights,
    W_over_s: Weights | None,
    parts: Int[Array, " bounds"],
    rows: Int[Array, " segments"],
    columns: Int[Array, "segments width"],
    values: Float[Array, "segments width"],
    *,
    num_threads: int,
) -> tuple[Weights, Float[Array, ""]]:
    """Compute ZW and sum S log Shat in one pass over S, which is given as padded segments of its rows.

    Shat_nl = sum_k W_over_s[rows[n], k] W[columns[n, l], k] and ZW[rows[n]] += sum_l values_nl / Shat_nl
    W[columns[n, l]]. The result does not depend on the number of threads. This runs on the CPU only.

    Args:
      W: positive, float32 or float64.
      W_over_s: W divided by its column sums. None computes S W instead, for any W, and a log-likelihood of
        zero.
      parts: int32. Part p consists of the segments from parts[p] to parts[p + 1]. No two parts share a row.
        One thread works on one part at a time.
      rows: int32, the row of each segment.
      columns: int32, the columns of each segment.
      values: in the dtype of W. A zero is padding; its column may be any valid one.
      num_threads: the largest number of threads, the caller's included.

    Returns:
      ZW, and the log-likelihood as a scalar, in the dtype of W.

    Raises:
      ValueError: naming the argument, if W is not float32 or float64, or num_threads is below 1.
      RuntimeError: if the kernel is not `available`.
      jax.errors.JaxRuntimeError: if shapes or dtypes do not fit, or a row or column is none of W. The kernel
        checks all of them itself, and reads and writes nothing outside of the arrays.
    """
    target = TARGETS.get(jnp.dtype(W.dtype).name)
    if target is None:
        raise ValueError(f"W must be float32 or float64, got {W.dtype}")
    if num_threads < 1:
        raise ValueError(f"num_threads must be at least 1, got {num_threads}")
    results = (jax.ShapeDtypeStruct(W.shape, W.dtype), jax.ShapeDtypeStruct((), W.dtype))
    factors = (W,) if W_over_s is None else (W, W_over_s)
    return tuple(_kernel(target, results)(*factors, parts, rows, columns, values, num_threads=num_threads))


def exact_step(
    sums: Sums, W: Weights, ZW: Weights, exponent: Float[Array, ""], *, num_threads: int
) -> Weights:
    """Compute the next W: the same as `decomposition.exact_step` and `over_relax`, in C on CPU threads.

    Only float32 is supported.

    Args:
      sums: the column sums of W and of W * ZW, as `decomposition.column_sums` returns them.
      W: the current weights, positive.
      ZW: the product Z W from the pass over S.
      exponent: the over-relaxation eta. 1 takes the exact step; larger values go further.
      num_threads: the largest number of threads, with the calling thread.

    Returns:
      The next W. Each row is positive and sums to one.
    """
    if W.dtype != jnp.float32:
        raise ValueError(f"W must be float32, got {W.dtype}")
    call = _kernel(_STEP, jax.ShapeDtypeStruct(W.shape, W.dtype))
    return call(sums.s, sums.plus, W, ZW, exponent, num_threads=num_threads)


def _kernel(target: str, results: Any) -> Callable[..., Any]:
    if not available():
        raise RuntimeError(f"no native kernel: {reason()}")
    return jax.ffi.ffi_call(target, results, vmap_method="sequential")


# --- Build and load the library -----------------------------------------------------------------------


def _load_once() -> tuple[bool, str]:
    with _lock:  # `functools.cache` alone would let two threads build
        return try_to_load()


@functools.cache
def try_to_load() -> tuple[bool, str]:
    """Build and load the kernel. Return whether that worked, and a sentence that says why."""
    if os.environ.get("DCDJAX_NATIVE") == "0":
        return False, "It is switched off by the environment variable DCDJAX_NATIVE=0."
    if sys.platform == "win32":
        return False, "It is not built on Windows."
    failures, deadline = [], time.monotonic() + BUILD_SECONDS
    folder = _library_folder()
    try:
        for compiler in find_compilers():
            try:
                library, version = load_library(compiler, folder, deadline)
            except BuildError as error:
                failures.append(f"{shlex.join(compiler)}: {error}")
                continue
            for target in (*TARGETS.values(), _STEP):
                jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(library[target]), platform="cpu")
            return True, f"It is in use, built by {version}."
    except Exception as error:  # the package works without the kernel, so no error may stop it
        failures.append(f"{type(error).__name__}: {error}")
    return False, f"It cannot be built: {'; '.join(failures)}" if failures else _NO_COMPILER


def find_compilers() -> Iterator[list[str]]:
    """Yield the compilers to try in turn. If $CC names one, no other is tried."""
    if chosen := shlex.split(os.environ.get("CC", "")):
        yield chosen
        return
    # Without developer tools, macOS has placeholders that open a window.
    has_placeholders = sys.platform == "darwin" and not _has_developer_tools()
    seen = set()
    for path in filter(None, map(shutil.which, ("cc", "gcc", "clang"))):
        real = os.path.realpath(path)
        if real not in seen and not (has_placeholders and path.startswith("/usr/bin/")):
            seen.add(real)
            yield [path]
    if importlib.util.find_spec("ziglang"):
        yield [sys.executable, "-m", "ziglang", "cc"]


def _has_developer_tools() -> bool:
    try:
        with tempfile.TemporaryDirectory(prefix="dcdjax-") as temporary:
            _run(["/usr/bin/xcode-select", "-p"], Path(temporary), time.monotonic() + BUILD_SECONDS)
        return True
    except BuildError:
        return False


def _library_folder() -> Path | None:
    """Return the folder that keeps libraries, or warn and return None if others can write there."""
    root = cache_folder()
    folder = root / "native"
    try:
        reason_against = trust.reason_against(folder, root)
    except OSError:  # it may not even be looked at
        return None
    if reason_against:
        warn(
            f"the compiled kernel is neither taken from {folder} nor kept there, because {reason_against}; "
            "choose another folder by the environment variable DCDJAX_CACHE",
            UserWarning,
        )
        return None
    return folder


def load_library(
    compiler: list[str], folder: Path | None, deadline: float | None = None
) -> tuple[ctypes.CDLL, str]:
    """Load the library from a folder, or build it and keep it there.

    Args:
      compiler: the command, with its own options.
      folder: where libraries are kept. None keeps none.
      deadline: the `time.monotonic` at which to give up. Default: after BUILD_SECONDS.

    Returns:
      The library, and the version of its compiler.

    Raises:
      BuildError: if the compiler makes no usable library in time.
    """
    deadline = time.monotonic() + BUILD_SECONDS if deadline is None else deadline
    source = importlib.resources.files("dcdjax.devices").joinpath("native.c").read_bytes()
    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_bytes()
    with tempfile.TemporaryDirectory(prefix="dcdjax-") as temporary:
        version = _run([*compiler, "--version"], Path(temporary), deadline)
        name = (version.decode(errors="replace").splitlines() or ["an unnamed compiler"])[0]
        program = os.path.realpath(shutil.which(compiler[0]) or compiler[0])
        options = repr((program, compiler[1:], FLAGS, _PROCESSOR_FLAGS)).encode()
        parts = (source, options, version, header, processor())
        key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]
        # The name of a file ends in its checksum, because loading a damaged library crashes the process.
        for path in sorted(folder.glob(f"{key}-*.so")) if folder else ():
            with suppress(OSError, BuildError):
                is_own = trust.reason_against(path, path.parent) is None
                if is_own and path.stem == f"{key}-{_checksum(path.read_bytes())}":
                    return _open_library(path), name
        built = _build(compiler, source, Path(temporary), deadline)
        if folder is None:
            return _open_library(built), name
        content = built.read_bytes()
        path = folder / f"{key}-{_checksum(content)}.so"
        try:
            trust.make_private(folder, folder.parent)
            with atomic_write(path) as file:
                os.chmod(file.fileno(), 0o600)  # whatever the user's usual permissions are
                file.write(content)
            return _open_library(path), name
        except (OSError, BuildError):  # no permission to write there, or to run files there
            with suppress(OSError):
                path.unlink(missing_ok=True)
            return _open_library(built), name


def _open_library(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
        for target in (*TARGETS.values(), _STEP):
            library[target]
    except (OSError, AttributeError) as error:
        raise BuildError(f"what it built cannot be loaded: {error}") from error
    return library


def _build(compiler: list[str], source: bytes, folder: Path, deadline: float) -> Path:
    code, built = folder / "native.c", folder / "native.so"
    code.write_bytes(source)
    command = [*compiler, *FLAGS, f"-I{jax.ffi.include_dir()}", str(code), "-o", str(built), "-lm"]
    failures = []
    for flags in _PROCESSOR_FLAGS:
        try:
            _run([*command, *flags], folder, deadline)
            if built.is_file():
                return built
            failures.append(BuildError("no library, and no complaint"))
        except BuildError as error:
            failures.append(error)
    raise failures[-1]


def _run(command: list[str], folder: Path, deadline: float) -> bytes:
    """Run a command and return what it prints. End it, and all that it has started, at the deadline."""
    # zig would fill a cache in the home folder. Here the cache is removed with the temporary folder.
    caches = {name: str(folder) for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
    environment = {**os.environ, "LC_ALL": "C", **caches}
    # Files, not pipes: what the command has left behind may hold a pipe open for ever.
    with open(folder / "output", "w+b") as output, open(folder / "errors", "w+b") as errors:
        streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": errors}
        try:
            process = subprocess.Popen(command, env=environment, process_group=0, **streams)  # noqa: S603, the user's own compiler
        except OSError as error:
            raise BuildError(str(error)) from error
        try:
            status = process.wait(max(0.0, deadline - time.monotonic()))
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise BuildError(f"not done after {BUILD_SECONDS:g} seconds in all") from None
            raise
        output.seek(0)
        errors.seek(0)
        if status != 0:
            lines = errors.read().decode(errors="replace").strip().splitlines()[:3]
            raise BuildError(" / ".join(lines) or f"exit code {status} without a word")
        return output.read()


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def processor() -> bytes:
    """Describe the processor's instructions, because machines that share a home folder may differ in them."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        # x86 lists them as flags, ARM as Features.
        kinds = sorted({line for line in lines if line.startswith(("flags", "Features", "CPU part"))})
        if kinds:
            return "\n".join([platform.machine(), *kinds]).encode()
    return f"{platform.machine()} {platform.processor()}".encode()
