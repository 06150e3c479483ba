"""Runs on however many devices there are: python devices.py DEVICES [PORT PROCESS DIR].

Prints the final lam of a run with sampled contexts, what audits say of it, the lam of a run with
contexts from an iterator and a warm start, and of one whose inner data set is spread over the
devices, which is corrected.
"""

import itertools
import os
import sys


def contexts(p):
    import numpy as np

    for i in itertools.count():
        noise = np.random.default_rng(i).normal(size=30)
        yield p.S | {"train": (np.asarray(p.S["train"][0]), noise)}


def main(devices, port=None, process=None, directory=None):
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
    from bilevax import problems

    p, q = problems.ridge(), problems.reweighting(n=64)
    mesh = jax.make_mesh((jax.device_count(),), ("device",)) if jax.device_count() > 1 else None

    def draw(S, key):
        return S | {"train": (S["train"][0], jax.random.normal(key, (30,)))}

    draw = jax.tree_util.Partial(draw, p.S)
    same = {"T": 20, "batch": 8, "optimizer": optax.adam(0.05), "mesh": mesh}
    rule, key = bx.Reverse(K=5), jax.random.key(1)
    lams = []
    for steps in (8, 15) if directory else (15,):  # the second goes on where the first ended
        result = bx.minimize(
            p.f,
            p.xi,
            rule,
            p.lam,
            contexts=draw,
            key=key,
            steps=steps,
            checkpoint=directory and bx.Checkpoint(directory, every=5),
            **same,
        )
    lams.append(result.lam)
    result = bx.minimize(
        p.f, p.xi, rule, p.lam, contexts=draw, key=key, steps=7, audit=bx.Audit(share=0.5), **same
    )
    lams.append(np.asarray([*result.history["audit_error"], *result.history["audit_cosine"]]))
    result = bx.minimize(
        p.f,
        p.xi,
        bx.Neumann(K=3),
        p.lam,
        contexts=contexts(p),
        warm_start=True,
        steps=15,
        at_once=1,
        **same,
    )
    lams.append(result.lam)

    def spread(a):
        """Examples over the devices, anything else on each of them."""
        a = np.asarray(a)
        place = NamedSharding(mesh, PartitionSpec("device" if a.shape[:1] == (64,) else None))
        return jax.make_array_from_callback(a.shape, place, lambda i: a[i])

    S = {name: jax.tree.map(spread, q.S[name]) if mesh else q.S[name] for name in ("train", "val")}
    S = S | {"key": q.S["key"]}
    adam = optax.adam(0.05)
    result = bx.minimize(q.f, q.xi, rule, q.lam, S=S, T=20, steps=6, optimizer=adam, correct=True)
    lams.append(result.lam)
    for lam in lams:
        print("lam", *(repr(float(x)) for x in np.asarray(jnp.ravel(jax.tree.leaves(lam)[0]))))


if __name__ == "__main__":
    main(*sys.argv[1:])
