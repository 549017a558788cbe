"""The strict flags: nothing is promoted silently, float64 exists."""

import ctypes
import gc
import os
import shutil
import sys
import tempfile
from pathlib import Path

# Half of the time of the tests is compilation, and LLVM spends much of it on making tiny programs fast. XLA's
# own passes stay as they are. CI also runs tests with all optimizations, by an empty XLA_FLAGS.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_parallel_codegen_split_count=1",
)

import hypothesis
import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Compiling for a new shape takes longer than hypothesis's deadline; the same examples every time.
hypothesis.settings.register_profile("dcdjax", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("dcdjax")


_MAX_RESIDENT_BYTES = 3 << 29

# What one process has compiled, the others need not compile again: half of all the time goes there.
_COMPILED = {
    "jax_compilation_cache_dir": "",
    "jax_persistent_cache_min_compile_time_secs": "0",
    "jax_persistent_cache_min_entry_size_bytes": "-1",
}


def pytest_configure(config):
    if hasattr(config, "workerinput"):
        return  # in the environment of the workers it stands already
    _COMPILED["jax_compilation_cache_dir"] = tempfile.mkdtemp(prefix="dcdjax-compiled-")
    for name, value in _COMPILED.items():
        os.environ[name.upper()] = value
        jax.config.update(name, value if name.endswith("dir") else int(value))


def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        shutil.rmtree(_COMPILED["jax_compilation_cache_dir"], ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown():
    """Drop compiled programs when a process has many of them: they would take gigabytes in the end."""
    result = yield
    if sys.platform == "linux" and resident_bytes() > _MAX_RESIDENT_BYTES:
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
    return result


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.fixture
def data():
    """The folder of real corpora, where there is one."""
    beside = Path(__file__).parent.parent.parent / "shared" / "data"
    folder = Path(os.environ.get("DCDJAX_DATA") or beside)
    if not (folder / "wikitext-2").is_dir():
        pytest.skip("no corpora: DCDJAX_DATA does not name their folder")
    return folder


@pytest.fixture(scope="session")
def cached(tmp_path_factory):
    """An environment with a cache that all processes of a run share, and no other run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    return {**os.environ, "DCDJAX_CACHE": str(folder)}


@pytest.fixture
def unchecked_annotations():
    """Lets wrong shapes through jaxtyping, so that a test sees what a user would."""
    import jaxtyping

    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(params=["xla", "native"])
def kernel(request, monkeypatch):
    """With the native kernel and without it; both with tiles small enough for small problems."""
    from dcdjax.devices import layout, native

    if request.param == "xla":
        monkeypatch.setattr(native, "available", lambda: False)
    elif not native.available():
        pytest.skip(f"no native kernel: {native.reason()}")
    for name in ("xla", "native"):
        monkeypatch.setitem(
            layout.DEVICE_KINDS,
            name,
            layout.DeviceKind(tile_size=16, cells_per_nonzero=2.0, block_bytes=2000),
        )
    return request.param
