"""The largest number of steps back that a budget of memory allows."""

from collections.abc import Callable


def largest(size: Callable[[int], int], most: int, budget: float) -> int:
    """The largest n <= most with size(n) <= budget; 0 if there is none.

    For sizes that grow, and nearly in a straight line: the line through what is known guesses
    the answer, so that four sizes mostly do. What is returned fits, and one more does not.
    """
    low, high = (1, size(1)), (most, size(most))
    if high[1] <= budget:
        return most
    if low[1] > budget:
        return 0
    tries = 0
    while high[0] - low[0] > 1:
        n = _on_the_line(low, high, budget) if tries < 4 else (low[0] + high[0]) // 2
        point, tries = (n, size(n)), tries + 1
        low, high = (point, high) if point[1] <= budget else (low, point)
    return low[0]


def _on_the_line(low: tuple[int, int], high: tuple[int, int], budget: float) -> int:
    """Where the line through two points meets the budget, strictly between them."""
    slope = (high[1] - low[1]) / (high[0] - low[0])
    return min(max(low[0] + int((budget - low[1]) / slope), low[0] + 1), high[0] - 1)
