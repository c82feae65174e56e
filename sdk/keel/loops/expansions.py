"""All expansions of scalar ops into others, in order of preference."""

from keel.loops.arithmetic_expansions import ARITHMETIC
from keel.loops.elementary_expansions import ELEMENTARY
from keel.loops.expansion import Expansion

EXPANSIONS: tuple[Expansion, ...] = ARITHMETIC + ELEMENTARY
"""The first expansion is used whose ops the target has or can be expanded itself."""
