"""Makes ``legal_evaluations`` and ``judge_helpers`` importable beside the tests that use them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
