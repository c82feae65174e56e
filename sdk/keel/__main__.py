"""``python -m keel``: the command ``keel``."""

from __future__ import annotations

import sys

from keel.cli import main

sys.exit(main())
