"""W and what a pass or a step needs enter; what it yields leaves, computed in C where there is a compiler.

`native.c` is compiled when it is first asked for, and kept in the cache folder. Without a compiler
`available` says no and `reason` why; the rest of the package does not need it. The environment variable
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
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dcdjax.datasets import cache_folder
from dcdjax.decomposition import Sums
from dcdjax.files import written_whole

_TARGETS = {"float32": "dcdjax_segments_pass_f32", "float64": "dcdjax_segments_pass_f64"}
_STEP = "dcdjax_exact_step_f32"

# Not -ffast-math: the solver relies on NaN, and its start-up code would flush subnormals in all threads.
# -fno-trapping-math lets the compiler make vectors of what has conditions.
_FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-pthread",
          "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")  # fmt: skip
# The instructions of this very processor; compilers that do not know the flag build for any of its kind.
_PROCESSORS = (("-march=native",), ())
_BUILD_SECONDS = 60

_lock = threading.Lock()


class _BuildError(Exception):
    """A compiler made no library: what it said."""


def available() -> bool:
    """Whether `segments_pass` can be called: decided once in a process, by building it if needed."""
    return _outcome()[0]


def reason() -> str:
    """One sentence: who built what is in use, or why nothing is."""
    return _outcome()[1]


def segments_pass(
    W: Float[Array, "words topics"],
    W_over_s: Float[Array, "words topics"] | None,
    parts: Int[Array, " bounds"],
    rows: Int[Array, " segments"],
    columns: Int[Array, "segments width"],
    values: Float[Array, "segments width"],
    *,
    num_threads: int,
) -> tuple[Float[Array, "words topics"], Float[Array, ""]]:
    """One pass over the nonzeros of S, given as padded pieces of its rows: (ZW, sum S log Shat).

    Shat_nl = sum_k W_over_s[rows[n], k] W[columns[n, l], k] and ZW[rows[n]] += sum_l values_nl / Shat_nl
    W[columns[n, l]]. The result does not depend on the number of threads. On the CPU only.

    Args:
      W: positive, float32 or float64.
      W_over_s: W over its column sums. Without it ZW is SW, for any W, and the log-likelihood zero.
      parts: int32; part p consists of the segments parts[p] to parts[p + 1], and no two parts share a row.
        A part is what one thread does at a time.
      rows: int32, the row of each segment. Not checked to be below the number of words, as columns are not.
      columns: int32, the columns of each segment.
      values: of the dtype of W. A zero is padding, whose column is any valid one.
      num_threads: how many threads to use at most, the caller's among them.

    Returns:
      ZW, and the log-likelihood as a scalar, in the dtype of W.

    Raises:
      ValueError: naming the argument, for another dtype of W or no threads.
      RuntimeError: if it is not `available`.
    """
    target = _TARGETS.get(jnp.dtype(W.dtype).name)
    if target is None:
        raise ValueError(f"W must be float32 or float64, got {W.dtype}")
    if num_threads < 1:
        raise ValueError(f"num_threads must be at least 1, got {num_threads}")
    if not available():
        raise RuntimeError(f"no native kernel: {reason()}")
    results = (jax.ShapeDtypeStruct(W.shape, W.dtype), jax.ShapeDtypeStruct((), W.dtype))
    call = jax.ffi.ffi_call(target, results, vmap_method="sequential")
    factors = (W,) if W_over_s is None else (W, W_over_s)
    ZW, log_likelihood = call(*factors, parts, rows, columns, values, num_threads=num_threads)
    return ZW, log_likelihood


def exact_step(
    sums: Sums,
    W: Float[Array, "words topics"],
    ZW: Float[Array, "words topics"],
    exponent: Float[Array, ""],
    *,
    num_threads: int,
) -> Float[Array, "words topics"]:
    """`decomposition.exact_step`, over-relaxed by the exponent unless that is 1. On the CPU, in float32 only.

    Args:
      sums: what all words share.
      W: positive.
      ZW: of the pass over S for this W.
      exponent: of `decomposition.over_relax`.
      num_threads: how many threads to use at most, the caller's among them.

    Returns:
      The next W, rows on the simplex.
    """
    if W.dtype != jnp.float32:
        raise ValueError(f"W must be float32, got {W.dtype}")
    if not available():
        raise RuntimeError(f"no native kernel: {reason()}")
    result = jax.ShapeDtypeStruct(W.shape, W.dtype)
    call = jax.ffi.ffi_call(_STEP, result, vmap_method="sequential")
    return call(sums.s, sums.plus, W, ZW, exponent, num_threads=num_threads)


# --- The library ------------------------------------------------------------------------------------


def _outcome() -> tuple[bool, str]:
    with _lock:  # `cache` alone would let two threads build
        return _decided()


@functools.cache
def _decided() -> tuple[bool, str]:
    if os.environ.get("DCDJAX_NATIVE") == "0":
        return False, "It is switched off by the environment variable DCDJAX_NATIVE=0."
    if sys.platform == "win32":
        return False, "It is not built on Windows."
    failures = []
    try:
        for compiler in _compilers():
            try:
                library, version = _library(compiler)
            except _BuildError as error:
                failures.append(f"{shlex.join(compiler)}: {error}")
                continue
            for target in (*_TARGETS.values(), _STEP):
                jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(library[target]), platform="cpu")
            return True, f"It is in use, built by {version}."
    except Exception as error:  # whatever is wrong, the package works without it
        failures.append(f"{type(error).__name__}: {error}")
    if not failures:
        return (
            False,
            "No C compiler is found: neither $CC nor cc, gcc, clang, nor the Python package ziglang.",
        )
    return False, f"It cannot be built: {'; '.join(failures)}"


def _compilers() -> Iterator[list[str]]:
    """The commands to try in turn; who names a compiler wants that one."""
    if chosen := shlex.split(os.environ.get("CC", "")):
        yield chosen
        return
    # Apple's are stand-ins that open a window where no developer tools are installed.
    stand_ins = sys.platform == "darwin" and not _has_developer_tools()
    seen = set()
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path is None or os.path.realpath(path) in seen or (stand_ins and path.startswith("/usr/bin/")):
            continue
        seen.add(os.path.realpath(path))
        yield [path]
    if importlib.util.find_spec("ziglang"):
        yield [sys.executable, "-m", "ziglang", "cc"]


def _has_developer_tools() -> bool:
    try:
        _run(["/usr/bin/xcode-select", "-p"], Path(tempfile.gettempdir()))
        return True
    except _BuildError:
        return False


def _library(compiler: list[str]) -> tuple[ctypes.CDLL, str]:
    """The library, from the cache or built, and the version of its compiler."""
    source = importlib.resources.files("dcdjax").joinpath("native.c").read_bytes()
    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_bytes()
    with tempfile.TemporaryDirectory(prefix="dcdjax-") as temporary:
        version = _run([*compiler, "--version"], Path(temporary)).stdout
        name = (version.decode(errors="replace").splitlines() or ["an unnamed compiler"])[0]
        parts = (source, repr((_FLAGS, _PROCESSORS)).encode(), version, header, _processor())
        key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]
        # A file's name ends in its checksum: a damaged library would take the process down when loaded.
        folder = cache_folder() / "native"
        for path in sorted(folder.glob(f"{key}-*.so")):
            with suppress(OSError, _BuildError):
                if path.stem == f"{key}-{_checksum(path.read_bytes())}":
                    return _loaded(path), name
        built = _build(compiler, source, Path(temporary))
        content = built.read_bytes()
        path = folder / f"{key}-{_checksum(content)}.so"
        try:
            with written_whole(path) as file:
                file.write(content)
            return _loaded(path), name
        except (OSError, _BuildError):  # no permission to write there, or to run what lies there
            with suppress(OSError):
                path.unlink(missing_ok=True)
            return _loaded(built), name


def _loaded(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
        for target in (*_TARGETS.values(), _STEP):
            library[target]
    except (OSError, AttributeError) as error:
        raise _BuildError(f"what it built cannot be loaded: {error}") from error
    return library


def _build(compiler: list[str], source: bytes, folder: Path) -> Path:
    (folder / "native.c").write_bytes(source)
    built = folder / "native.so"
    command = [
        *compiler,
        *_FLAGS,
        f"-I{jax.ffi.include_dir()}",
        str(folder / "native.c"),
        "-o",
        str(built),
        "-lm",
    ]
    failures = []
    for flags in _PROCESSORS:
        try:
            _run([*command, *flags], folder)
            if built.is_file():
                return built
            failures.append(_BuildError("no library, and no complaint"))
        except _BuildError as error:
            failures.append(error)
    raise failures[-1]


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[bytes]:
    # zig would fill a cache of its own in the home folder; here it vanishes with the rest.
    caches = {name: str(folder) for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
    try:
        done = subprocess.run(  # noqa: S603, the user's own compiler
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_BUILD_SECONDS,
            env={**os.environ, "LC_ALL": "C", **caches},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _BuildError(str(error)) from error
    if done.returncode != 0:
        raise _BuildError(_said(done))
    return done


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode(errors="replace").strip().splitlines()[:3]
    return " / ".join(lines) or f"exit code {done.returncode} without a word"


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _processor() -> bytes:
    """What instructions there are: a home folder may be shared by machines that differ in them."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        # x86 calls them flags, ARM Features.
        kinds = sorted({line for line in lines if line.startswith(("flags", "Features", "CPU part"))})
        if kinds:
            return "\n".join([platform.machine(), *kinds]).encode()
    return f"{platform.machine()} {platform.processor()}".encode()
