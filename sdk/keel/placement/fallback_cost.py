"""What a backend of last resort costs that has no data sheet."""

import math

from keel.cost import Cost

FALLBACK_COST = Cost(flops={}, scalars=math.inf, bandwidth=math.inf, launch=1e-4, call=1e-3)
"""A millisecond for each call, and a tenth of one for each part: more than any data sheet says."""
