"""Who takes part, and in what."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from .wants import Budget, Checkpointed, Full, Implicit, Rule, Truncated, Want

LIBRARIES = {
    "bilevax": "ours",
    "plain JAX": "plain_jax",
    "plain JAX, checkpoint": "plain_jax_checkpoint",
    "jaxopt": "peer_jaxopt",
    "optimistix": "peer_optimistix",
    "plain PyTorch": "plain_torch",
    "higher": "peer_higher",
    "TorchOpt": "peer_torchopt",
    "BOAT": "peer_boat",
}
TORCH = ("plain PyTorch", "higher", "TorchOpt", "BOAT")
PACKAGES = ("torch", "higher", "torchopt", "boat-torch", "jaxopt", "optimistix")

Method = tuple[str, Want]


def load(name: str) -> ModuleType:
    return import_module(f".{LIBRARIES[name]}", __package__)


def versions() -> dict[str, str | None]:
    def one(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    return {package: one(package) for package in PACKAGES}


def _all(*wants: Want, but: dict[str, tuple[Want, ...]]) -> list[Method]:
    return [(name, want) for name in LIBRARIES for want in but.get(name, wants)]


KRYLOV = tuple(map(Rule, ("Krylov(2, 4)", "Krylov(1, 10)", "Krylov(4, 8)")))
OTHERS = tuple(map(Rule, ("AdaptiveKrylov(rtol=0.05)", "Neumann(K=10)")))


def timed(problem: str, T: int, quick: bool = False) -> list[Method]:
    """The methods that take turns on a problem; a library leaves out what it does not offer."""
    if quick:
        return [(name, want) for name in LIBRARIES for want in (Full(), Truncated(5))]
    if problem == "Omniglot":
        wants = (Full(), Truncated(1), Truncated(10))
        few = {"plain JAX": wants[::2], "plain JAX, checkpoint": wants[:1]}  # slow to compile
        return _all(*wants, but=few | {"bilevax": (*wants, Budget(), Budget(10))})
    if problem == "toy":
        wants = (Full(), Truncated(5), Implicit())
        return _all(*wants, but={"bilevax": (*wants, Rule("Forward()"), *KRYLOV[:1])})
    checkpointed = Checkpointed(max(round(T**0.5), 1))
    convex = problem == "hypercleaning"  # conjugate gradients need a positive Hessian
    wants = (Full(), Truncated(5), checkpointed, *((Implicit(),) if convex else ()))
    depths = tuple(Truncated(K) for K in (1, 25, 50) if K < T)
    rules = (*KRYLOV, *OTHERS) if convex else KRYLOV[:1]
    more = {
        "bilevax": (*wants, Budget(), Budget(5), *depths, *rules),
        "plain PyTorch": (*wants, *depths),
    }
    return _all(*wants, but=more)


def weighed(T: int) -> list[Method]:
    """The methods whose memory is measured, each in a process of its own."""
    segment = Checkpointed(max(round(T**0.5), 1))
    ours = (Full(), Truncated(5), segment, Rule("Krylov(2, 4)"))
    some = {"bilevax": ours, "plain JAX": (Full(),), "plain JAX, checkpoint": (Full(), segment)}
    some |= {"plain PyTorch": (Full(), Truncated(5), segment), "optimistix": (Full(), segment)}
    if T > 100:  # where they are as plain PyTorch, and slow
        some |= dict.fromkeys(("higher", "TorchOpt", "BOAT"), ())
    return _all(Full(), but=some)
