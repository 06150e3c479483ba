"""A replayed hypergradient of a divided model: python sharded.py DEVICES DIR [PORT PROCESS].

It is stopped on either way, and goes on. Prints f, h and w; what of the tape belongs to this
process is looked at before it goes on.
"""

import os
import pathlib
import sys


class Stop(Exception):
    pass


class Batches:
    """Batch t by t; after `left` of them it stops."""

    def __init__(self, left):
        self.left = left

    def __getitem__(self, t):
        import numpy as np

        self.left -= 1
        if self.left < 0:
            raise Stop
        return np.random.default_rng(t).normal(size=(4, 8))


def main(devices, directory, port=None, process=0):
    given = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{given} --xla_force_host_platform_device_count={devices}"
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    if port is not None:
        jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(process))
    import jax.numpy as jnp
    import numpy as np
    import optax
    from jax.sharding import NamedSharding, PartitionSpec

    import bilevax as bx

    n = jax.device_count()
    w = np.random.default_rng(0).normal(size=(8, 3))
    if n > 1:
        place = NamedSharding(jax.make_mesh((n,), ("device",)), PartitionSpec("device"))
        w = jax.make_array_from_callback(w.shape, place, lambda i: w[i])
    g = lambda w, lam, x: jnp.mean(jnp.tanh(x @ w - 1.0) ** 2) + jnp.exp(lam["p"]) * jnp.sum(w**2)
    f = lambda w, lam, S: jnp.mean((S @ w - 1.0) ** 2)
    xi = bx.Descent(
        g, bx.constant(jnp.asarray(w)), lambda lam: optax.adamw(lam["rate"], eps_root=1e-8)
    )
    lam = {"p": jnp.asarray(-2.0), "rate": jnp.asarray(0.1)}
    store = bx.Store(directory, host=1)
    run = lambda left: bx.replay(
        f, xi, T=20, batches=Batches(left), segment=3, store=store, progress=False
    )(lam, np.random.default_rng(1).normal(size=(5, 8)))
    for left in (2 + 10, 2 + 20 + 8):
        try:
            run(left)
        except Stop:
            for path in pathlib.Path(directory).glob(f"bilevax-*.{process}.npz"):
                divided(path, jax.local_device_count() if n > 1 else 1, n)
    out = run(1000)
    if n > 1:
        assert out.w.sharding.spec == PartitionSpec("device"), out.w.sharding
        out = out._replace(w=jax.jit(lambda a: a, out_shardings=whole(out.w))(out.w))
    numbers = np.concatenate([np.ravel(a) for a in jax.tree.leaves((out.value, out.h, out.w))])
    print("numbers", *(repr(float(x)) for x in numbers))


def whole(a):
    from jax.sharding import NamedSharding, PartitionSpec

    return NamedSharding(a.sharding.mesh, PartitionSpec())


def divided(path, local, n):
    """w and both moments are on the tape in the pieces of the devices of this process."""
    import numpy as np

    with np.load(path) as members:
        pieces = [a.shape for name, a in members.items() if a.ndim == 2]
    assert pieces == [(8 // n, 3)] * (3 * local), (path, pieces)


if __name__ == "__main__":
    main(*sys.argv[1:])
