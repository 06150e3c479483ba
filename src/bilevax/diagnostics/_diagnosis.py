"""A diagnosis: numbers over depths, what the theory asks for, and advice in words."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from .._errors import diagnostics
from ._advice import advise

SELECTION = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 750, 1000)
"""The K that are printed of all from 1 to T."""
LEAVES = 8
"""How many leaves of lam are printed."""


@dataclasses.dataclass(frozen=True)
class Theory:
    """What was measured of the assumptions of Prop. 3.1 and Theorem 3.4.

    !!! example

        >>> import bilevax as bx
        >>> from bilevax import problems
        >>> p = problems.quadratic(T=30, gamma=0.4)  # eigenvalues of the Hessian from 0.1 to 1
        >>> theory = bx.diagnose(p.f, p.xi, p.lam, p.S, T=p.T).theory
        >>> print(f"{theory.gamma_alpha:.2f} {theory.gamma_beta:.2f}")
        0.04 0.40
    """

    symmetric: bool
    """Whether A is, as for gradient descent; the bounds are about that case alone."""
    gamma_alpha: float | None
    """1 - the largest eigenvalue of A around w_T: the contraction that the bounds count on."""
    gamma_beta: float | None
    """1 - the smallest: Prop. 3.1 wants at most 1."""
    doubt: float
    """By how much gamma_alpha may be too large (Lanczos's residual)."""
    norm_B: float
    """The largest |B_t| among the iterates that were looked at."""
    least_singular: float | None
    """Of B_T, relative to the largest; None if there are more states than lam, or too many."""
    M: int
    """The number of states."""
    N: int
    """The number of hyperparameters."""


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` returns; arrays run over `depths`.

    !!! example

        >>> import bilevax as bx
        >>> from bilevax import problems
        >>> p = problems.quadratic(T=30)
        >>> d = bx.diagnose(p.f, p.xi, p.lam, p.S, T=p.T, depths=(5, 15, 30), lanczos=0)
        >>> d.enough(0.3), d.error.shape
        (5, (3,))
    """

    T: int
    depths: np.ndarray
    """K."""
    bias: np.ndarray
    """|h_{T-K} - d_lam f|."""
    error: np.ndarray
    """The same, relative to |d_lam f|."""
    cosine: np.ndarray
    descent: np.ndarray
    """h_{T-K}' d_lam f / |d_lam f|^2, which Lemma 3.2 wants positive."""
    leaf_error: dict[str, np.ndarray]
    """The error in each leaf of lam, relative to |d_lam f| in that leaf."""
    leaf_cosine: dict[str, np.ndarray]
    """The cosine in each leaf of lam: in the whole a large leaf hides what a small one gets."""
    interference: np.ndarray | None
    """grad_lam f' (d_lam f + h_{T-K} - grad_lam f) / |grad_lam f|^2, which assumption 3 of
    Theorem 3.4 wants positive; None where f does not depend on lam directly, and it holds."""
    h_norm: float
    slope: float
    """|grad_w f|."""
    alphas: np.ndarray
    """|alpha_T|, |alpha_{T-1}|, ..., |alpha_0|."""
    parts: np.ndarray
    """|B_T alpha_T|, |B_{T-1} alpha_{T-1}|, ..."""
    start: float
    """|B_0 alpha_0|, what comes through the initialisation."""
    stationarity: float | None
    """|grad_w g| at w_T, relative to that at w_0."""
    optimum_fails: str | None
    """Why g cannot be asked on the whole S, which stationarity, `Implicit` and `Neumann` need."""
    theory: Theory | None
    only_start: list[str]
    """Leaves of lam that enter through the initialisation alone."""
    asymmetry: float | None
    """How far from symmetric the second derivatives of g are, where `Descent(symmetric=True)` is
    wrong about them; else None."""

    @property
    def contraction(self) -> float:
        """The factor by which |alpha_t| shrinks in a step, on average over the loop."""
        seen = self.alphas[self.alphas > 1e-12 * self.alphas[0]] if self.alphas[0] > 0 else []
        if len(seen) < 2:
            return 0.0
        return float((seen[-1] / seen[0]) ** (1 / (len(seen) - 1)))

    @property
    def bound(self) -> np.ndarray | None:
        """Eq. 10, for g that is strongly convex everywhere: the bias is below this."""
        rate = self._rate()
        return None if rate is None else (1 - rate) ** self.depths / rate * self._scale()

    @property
    def local_bound(self) -> np.ndarray | None:
        """Eq. 9, for g that is strongly convex around the last iterates only."""
        rate = self._rate()
        if rate is None:
            return None
        K = self.depths.astype(float)
        with np.errstate(over="ignore"):
            log = (self.T - K + 1) * math.log(2) + K * math.log1p(-rate)
            return np.exp(log) * self._scale()

    def _rate(self) -> float | None:
        """gamma alpha, where Prop. 3.1 speaks."""
        rate = self.theory.gamma_alpha if self.theory else None
        return rate if rate is not None and 0 < rate < 1 else None

    def _scale(self) -> float:
        """|grad_w f| M_B."""
        return self.slope * self.theory.norm_B if self.theory else math.nan

    def enough(self, rtol: float, leaf: str | None = None) -> int | None:
        """The smallest depth from which on the relative error, or that of a leaf, is below rtol."""
        good = (self.error if leaf is None else self.leaf_error[leaf]) <= rtol
        last_bad = np.flatnonzero(~good)[-1] + 1 if not good.all() else 0
        return int(self.depths[last_bad]) if last_bad < len(self.depths) else None

    @property
    def advice(self) -> list[str]:
        """What to do, in sentences, the most important first."""
        return advise(self)

    def as_dict(self) -> dict[str, Any]:
        """Numbers and lists, for JSON; what is not defined is None."""
        more = ("contraction", "bound", "local_bound", "advice")
        out = dataclasses.asdict(self) | {name: getattr(self, name) for name in more}
        return jax.tree.map(lambda x: x.tolist() if isinstance(x, np.ndarray) else x, out)

    def __str__(self) -> str:
        lines = [f"* {sentence}" for sentence in self.advice]
        return "\n".join([*lines, "", *self._table(), *self._leaf_tables(), "", *self._facts()])

    def _rows(self) -> list[int]:
        """Where to look: all depths that were asked for; of every K up to T, a selection."""
        every = range(len(self.depths))
        if len(self.depths) < self.T or self.T <= 20:
            return list(every)
        return [i for i in every if self.depths[i] in SELECTION or i == every[-1]]

    def _table(self) -> list[str]:
        out = [f"{'K':>6} {'error':>9} {'cosine':>8} {'descent':>8} {'bias':>10} {'bound':>10}"]
        for i in self._rows():
            bound = "-" if self.bound is None else f"{self.bound[i]:.2e}"
            out.append(
                f"{self.depths[i]:6d} {self.error[i]:9.2e} {_cosine(self.cosine[i])} "
                f"{self.descent[i]:8.4f} {self.bias[i]:10.2e} {bound:>10}"
            )
        return out

    def _leaf_tables(self) -> list[str]:
        """Error and cosine in each leaf of lam, if there are several."""
        out = []
        for name in list(self.leaf_error)[:LEAVES] if len(self.leaf_error) > 1 else []:
            error, cosine = self.leaf_error[name], self.leaf_cosine[name]
            out += ["", name, f"{'K':>6} {'error':>9} {'cosine':>8}"]
            out += [
                f"{self.depths[i]:6d} {error[i]:9.2e} {_cosine(cosine[i])}" for i in self._rows()
            ]
        if len(self.leaf_error) > LEAVES:
            out += ["", f"and {len(self.leaf_error) - LEAVES} more leaves: see leaf_error"]
        return out

    def _facts(self) -> list[str]:
        theory = self.theory
        out = [f"contraction of alpha_t in a step: {self.contraction:.4g}"]
        if self.stationarity is not None:
            out.append(f"|grad g(w_T)| / |grad g(w_0)|: {self.stationarity:.2g}")
        if theory is None:
            return [*out, "spectrum: not measured (lanczos=0)"]
        if not theory.symmetric:
            return [*out, "gamma alpha, gamma beta, bounds: not defined, A is not symmetric"]
        out.append(
            f"gamma alpha: {theory.gamma_alpha:.3g} (at most {theory.doubt:.1g} less), "
            f"gamma beta: {theory.gamma_beta:.3g}, |B|: {theory.norm_B:.3g}"
        )
        return out

    def plot(self, axis: Any = None) -> Any:
        """Bias and bounds against K, on a matplotlib axis."""
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError(diagnostics.PLOT) from error

        axis = plt.subplots()[1] if axis is None else axis
        axis.semilogy(self.depths, self.bias, "o-", ms=3, label="bias of h_{T-K}")
        for bound, style, label in ((self.bound, "--", "Eq. 10"), (self.local_bound, ":", "Eq. 9")):
            if bound is not None:
                axis.semilogy(self.depths, bound, style, label=f"bound, {label}")
        axis.axhline(self.h_norm, color="grey", lw=0.8, label="|d f|")
        axis.set(xlabel="K", ylabel="norm")
        axis.legend()
        return axis


def _cosine(x: float) -> str:
    """A vector of zeros has none."""
    return f"{'-':>8}" if math.isnan(x) else f"{x:8.4f}"
