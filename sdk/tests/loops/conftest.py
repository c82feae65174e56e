"""Property tests give the same examples on every run; KEEL_EXAMPLES looks at more of them."""

from __future__ import annotations

import os

from hypothesis import settings

_MORE = os.environ.get("KEEL_EXAMPLES")
settings.register_profile("loops", deadline=None, derandomize=_MORE is None, max_examples=int(_MORE or 60))
settings.load_profile("loops")
