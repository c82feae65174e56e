"""The code of ``docs/how/frameworks.md``, by the headings that it stands under."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "how" / "frameworks.md"


def snippets(heading: str) -> list[str]:
    """The Python blocks between this heading and the next one. Raises ValueError if there is no such heading."""
    _, _, rest = f"\n{PAGE.read_text()}".partition(f"\n{heading}\n")
    if not rest:
        raise ValueError(f"{PAGE.name} has no heading {heading!r}")
    return re.findall(r"^```python\n(.*?)^```$", re.split(r"^#+ ", rest, flags=re.M)[0], re.M | re.S)
