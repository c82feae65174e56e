"""All ways to make a scalar op of others, in order of preference."""

from keel.loops.arithmetic_expansions import ARITHMETIC
from keel.loops.elementary_expansions import ELEMENTARY
from keel.loops.expansion import Expansion

EXPANSIONS: tuple[Expansion, ...] = ARITHMETIC + ELEMENTARY
"""The first whose ops the target has, or can be given, is taken."""
