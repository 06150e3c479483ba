"""How long a compiled program takes, read off its text: nothing is run.

After XLA has fused, hoisted and dropped what it can, a program is a list of kernels and of
loops with known lengths. Each kernel has a price: its launch, the bytes that it moves, what
it computes. Only ratios of two programs are of use: in them the speed of the machine cancels,
and what remains is the balance of launches, bytes and arithmetic.
"""

import math
import re
from collections import Counter
from typing import NamedTuple, TypeAlias

PRICES = {
    "cpu": {
        "call": 9.2e-5,
        "kernel": 5.9e-8,
        "inline": 1.35e-8,
        "foreign": 4.9e-5,
        "product": 6.8e-7,
        "flop": 1.6e-11,
        "operand": 1e-11,
        "byte": 1.1e-10,
        "function": 3e-9,
        "entry": 5.5e-9,
    }
}
"""Seconds, by platform: for a call of the program, a kernel, an instruction of a loop that is
one kernel, a call of a foreign function; for a product of matrices, each of its operations and
bytes; for a byte of other kernels; for an exp, a log, a quotient; for an entry of a scatter.

Fitted to programs of `benchmarks/forecast.py` on two cores of an x86 machine, which also says how
far they are off on others."""

FREE = frozenset(["parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all"])
FUNCTIONS = frozenset(
    [
        "exponential",
        "exponential-minus-one",
        "log",
        "log-plus-one",
        "tanh",
        "logistic",
        "sine",
        "cosine",
        "tan",
        "atan2",
        "power",
        "erf",
        "sqrt",
        "rsqrt",
        "cbrt",
        "divide",
    ]
)
SLICES = frozenset(["dynamic-slice", "dynamic-update-slice", "gather", "scatter"])
WIDTHS = {"pred": 1, "token": 0}

_OPENING = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
_LINE = re.compile(r"^\s+(?:ROOT )?%?([\w.-]+) = (.*?) ([a-z][\w-]*)\((.*?)\)(.*)$")
_COMMENT = re.compile(r"/\*.*?\*/")
_ARRAY = re.compile(r"([a-z]+(\d*)\w*)\[([\d,]*)\]")
_OPERAND = re.compile(r"%([\w.-]+)")
_TRIPS = re.compile(r'known_trip_count":\{"n":"(\d+)"')
_INLINE = 'xla_cpu_small_call="true"'
"""XLA's mark of a small loop that is compiled into one kernel."""


class Instruction(NamedTuple):
    """A line of a program: shape op(operands), attributes."""

    shape: str
    op: str
    operands: list[str]
    attributes: str


Body: TypeAlias = dict[str, Instruction]


def seconds(text: str, platform: str) -> float | None:
    """What a program costs at the platform's prices; None for a platform without prices."""
    if platform not in PRICES:
        return None
    return sum(PRICES[platform][kind] * n for kind, n in work(text).items())


def work(text: str) -> Counter[str]:
    """How often a program does each of the things that have a price.

    A loop whose length XLA does not know counts once.
    """
    entry, bodies = _parse(text)
    return Counter(call=1) + _of_body(bodies, entry, "kernel")


def _parse(text: str) -> tuple[str, dict[str, Body]]:
    """The name of the main computation, and all computations."""
    entry, bodies, here = "", {}, {}
    for line in text.splitlines():
        if opening := _OPENING.match(line):
            here = bodies.setdefault(opening[2], {})
            entry = opening[2] if opening[1] else entry
        elif found := _LINE.match(_COMMENT.sub("", line)):
            name, shape, op, operands, attributes = found.groups()
            here[name] = Instruction(shape, op, _OPERAND.findall(operands), attributes)
    return entry, bodies


def _of_body(bodies: dict[str, Body], name: str, unit: str) -> Counter[str]:
    """`unit`: what an instruction is here, a "kernel", "inline" in one, or "fused"."""
    total = Counter()
    for line in bodies[name].values():
        if line.op not in FREE:
            total += _of_line(bodies, bodies[name], line, unit)
    return total


def _of_line(bodies: dict[str, Body], body: Body, line: Instruction, unit: str) -> Counter[str]:
    inner = lambda key, unit: _of_body(bodies, _named(line, key)[0], unit)
    if line.op == "while":
        trips = _TRIPS.search(line.attributes)
        return _times(int(trips[1]) if trips else 1, inner("body", unit) + inner("condition", unit))
    if line.op == "conditional":
        return max((_of_body(bodies, name, unit) for name in _branches(line)), key=Counter.total)
    if line.op == "call" and _INLINE in line.attributes:
        return Counter(kernel=1) + inner("to_apply", "inline")
    if line.op == "call":
        return inner("to_apply", unit)
    if line.op == "fusion":
        ops = {part.op for part in bodies[_named(line, "calls")[0]].values()}
        return inner("calls", "fused") + _traffic(body, line, unit, ops)
    return _arithmetic(body, line, unit) + _traffic(body, line, unit, {line.op})


def _traffic(body: Body, line: Instruction, unit: str, ops: set[str]) -> Counter[str]:
    """A launch, and the bytes read and written.

    What reads or writes a slice of an array leaves the rest of it alone, in memory too.
    """
    if unit == "fused":
        return Counter()
    if unit == "inline":
        return Counter(inline=1)
    sizes = [_bytes(line.shape), *(_bytes(body[x].shape) for x in line.operands)]
    moved = sum(n for n in sizes if not ops & SLICES or n < max(sizes))
    return Counter({"kernel": 1, "operand" if "dot" in ops else "byte": moved})


def _arithmetic(body: Body, line: Instruction, unit: str) -> Counter[str]:
    """What has a price of its own; additions and multiplications keep up with memory."""
    if line.op == "dot":
        k, m, n = _sides(body, line)
        library = unit != "inline" and min(m, n) > 1  # a vector's product is a loop in place
        return Counter(flop=2 * k * m * n, product=int(library))
    if line.op in FUNCTIONS:
        return Counter(function=_size(line.shape))
    if line.op == "scatter":
        return Counter(entry=_size(body[line.operands[-1]].shape))
    return Counter(foreign=int(line.op == "custom-call"))


def _sides(body: Body, line: Instruction) -> tuple[int, int, int]:
    """k, m, n of a product of matrices m x k and k x n; batches count as rows."""
    shape = _dimensions(body[line.operands[0]].shape)
    k = math.prod(shape[int(i)] for i in _named(line, "lhs_contracting_dims") if i)
    m = math.prod(shape) // max(k, 1)
    return k, m, _size(line.shape) // max(m, 1)


def _named(line: Instruction, key: str) -> list[str]:
    """The values of an attribute: key=%name, or key={a,b}."""
    found = re.search(rf"\b{key}=(?:\{{(.*?)\}}|([^,\s]+))", line.attributes)
    assert found, f"XLA's text has no {key} in {line.op}"
    return [x.strip().lstrip("%") for x in (found[1] if found[2] is None else found[2]).split(",")]


def _branches(line: Instruction) -> list[str]:
    if "branch_computations=" in line.attributes:
        return _named(line, "branch_computations")
    return _named(line, "true_computation") + _named(line, "false_computation")


def _times(n: int, once: Counter[str]) -> Counter[str]:
    return Counter({kind: n * count for kind, count in once.items()})


def _dimensions(shape: str) -> list[int]:
    found = _ARRAY.search(shape)
    return [int(n) for n in found[3].split(",") if n] if found else []


def _size(shape: str) -> int:
    return math.prod(_dimensions(shape))


def _bytes(shape: str) -> int:
    """Of an array, or of all arrays in a tuple."""
    total = 0
    for kind, bits, dimensions in _ARRAY.findall(shape):
        width = WIDTHS.get(kind) if kind in WIDTHS else int(bits or 32) // 8
        total += (width or 0) * math.prod(int(n) for n in dimensions.split(",") if n)
    return total
