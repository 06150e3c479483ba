"""Float64, no implicit promotion of dtype or rank; programs compiled fast, not well."""

import gc
import importlib.util
import os

import jaxlib.version

# Tests compile thousands of small programs and run each once. XLA aborts on a flag it
# does not know, so the flags are given only to the versions that have them.
if jaxlib.version.__version_info__ < (0, 11):
    fast = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    fast += " --xla_cpu_parallel_codegen_split_count=1"
    os.environ.setdefault("XLA_FLAGS", fast)

# The second thread of NumPy's and SciPy's BLAS spins while it waits for small matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Programs are traced by the thousand: no record of the Python lines in them, and less collecting of
# garbage, of which tracing makes little.
jax.config.update("jax_include_full_tracebacks_in_locations", False)
jax.config.update("jax_traceback_in_locations_limit", 0)
gc.set_threshold(100_000, 20, 20)


@pytest.fixture(autouse=True)
def _plain_doctests(request):
    """Examples in docstrings show what a user sees, who has JAX's own settings."""
    if not isinstance(request.node, pytest.DoctestItem):
        yield
        return
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


# Examples that are tests, too, of the same length; and what uses a fixture that takes as long.
SLOW_EXAMPLES = "FewShotLearner", "check_rule"
SLOW_FIXTURES = {"learner"}


def pytest_collection_modifyitems(items):
    for item in items:
        fixtures = {*getattr(item, "fixturenames", ())}
        if item.name.endswith(SLOW_EXAMPLES) or fixtures & SLOW_FIXTURES:
            item.add_marker(pytest.mark.slow)


# PyTorch is in the environment of `make test-models` only.
WITH_TORCH = ["src/bilevax/torch/*", "tests/pytorch/*"]
collect_ignore_glob = [] if importlib.util.find_spec("torchax") else WITH_TORCH
