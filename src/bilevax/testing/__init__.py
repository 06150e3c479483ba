"""A battery of tests for rules, and an oracle to test them against."""

from ._battery import check_rule as check_rule
from ._battery import unrolled as unrolled
