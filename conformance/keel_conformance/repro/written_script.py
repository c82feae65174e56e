"""What is known of a written script, and what its file is called."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..cases.case import Case

FOLDER = "repro"
"""Where scripts are, below the folder of a run."""


@dataclass(frozen=True)
class Written:
    """``path`` is below the folder of the run. ``shown`` says that the script was run and exited with 1, ``smaller``
    that the failure was made smaller; without a script ``lacking`` says why.
    """

    case: str
    path: str = ""
    shown: bool = False
    smaller: bool = False
    lacking: str = ""


def name_of(case: Case) -> str:
    """A file's name for a case, as readable as its id."""
    return f"{FOLDER}/{re.sub(r'[^A-Za-z0-9_.=-]+', '-', case.id)[:150]}.py"
