"""The cost of a backend of last resort that has no data sheet."""

import math

from keel.cost import Cost

FALLBACK_COST = Cost(flops={}, scalars=math.inf, bandwidth=math.inf, launch=1e-4, call=1e-3)
"""A millisecond for each call and a tenth of one for each part: more than the numbers of any data sheet."""
