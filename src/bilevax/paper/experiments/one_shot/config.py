"""Settings of one-shot classification."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """Settings; the defaults are the paper's, but for what docs/reproduction.md says."""

    data: str = "omniglot"
    train: int = 1200
    """Characters to learn from; as many for settings as the next says, the rest for testing."""
    validation: int = 100
    ways: int = 5
    shots: int = 1
    queries: int = 15
    filters: int = 64
    T: int = 50
    rules: tuple[str, ...] = (
        "Reverse(K=10)",
        "Reverse(K=1)",
        "Krylov(2, 4)",
        "Reverse(K=25)",
        "Reverse()",
        "T=1",
    )
    """Rules, or "T=1": full back-propagation through a shorter horizon."""
    steps: int = 5000
    """Hyper-iterations of Adam."""
    batch: int = 4
    """Tasks in a hyper-iteration,"""
    at_once: int = 1
    """of which so many go through vmap together."""
    rate: float = 0.003
    """Of Adam; it falls to a hundredth as half a cosine."""
    slow: float = 0.1
    """The rates of log rho and log gamma are smaller by this factor."""
    rho: float = 0.0025
    gamma: float = 0.4
    strong: float = 0.1
    """Another rho, at which the error of truncation is looked at in the end."""
    every: int = 250
    """Hyper-iterations between evaluations."""
    episodes: int = 120
    """Test tasks in an evaluation, the same in all; and a third as many for validation."""
    seed: int = 0
    preset: str = "paper"
    experiment: str = "one-shot"

    @classmethod
    def quick(cls) -> "Config":
        """Invented characters, a small network, a short horizon; most of it is compilation."""
        return cls(
            "glyphs", train=80, validation=20, queries=5, filters=8, T=10, steps=80, every=40,
            episodes=40, batch=2, rate=0.01, strong=0.25, preset="quick",
            rules=("Reverse(K=5)", "Reverse()"),
        )  # fmt: skip
