"""The processes that these tests start import ``failing_backends`` by its name, so it has to be found by it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
