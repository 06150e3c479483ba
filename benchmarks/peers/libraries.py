"""Who takes part, and in what."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from .wants import Checkpointed, Full, Implicit, Rule, Truncated, Want

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


RULES = tuple(
    map(Rule, ("Krylov(2, 4)", "Krylov(4, 8)", "AdaptiveKrylov(rtol=0.05)", "Neumann(K=10)"))
)


def timed(problem: str, T: int, quick: bool = False) -> list[Method]:
    """The methods that take turns on a problem; a library leaves out what it does not offer."""
    if quick:
        return [(name, want) for name in LIBRARIES for want in (Full(), Truncated(5))]
    if problem == "Omniglot":
        wants = (Full(), Truncated(1), Truncated(10), Checkpointed(7))
        return _all(*wants, but={"bilevax": (*wants, Rule("Krylov(2, 4)"))})
    if problem == "toy":
        wants = (Full(), Truncated(5), Implicit())
        return _all(*wants, but={"bilevax": (*wants, Rule("Forward()"), Rule("Krylov(2, 4)"))})
    checkpointed = Checkpointed(max(round(T**0.5), 1))
    implicit = (Implicit(),) if problem == "hypercleaning" else ()  # needs a positive Hessian
    wants = (Full(), Truncated(5), checkpointed, *implicit)
    depths = tuple(Truncated(K) for K in (1, 25, 50) if K < T)
    more = {"bilevax": (*wants, *depths, *RULES), "plain PyTorch": (*wants, *depths)}
    return _all(*wants, but=more)


def weighed(T: int) -> list[Method]:
    """The methods whose memory is measured, each in a process of its own."""
    segment = Checkpointed(max(round(T**0.5), 1))
    ours = (Full(), Truncated(5), segment, Rule("Krylov(2, 4)"))
    some = {"bilevax": ours, "plain JAX": (Full(),), "plain JAX, checkpoint": (Full(), segment)}
    some |= {"plain PyTorch": (Full(), Truncated(5), segment), "optimistix": (segment,)}
    return _all(Full(), but=some)
