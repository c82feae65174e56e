"""Scripts of at most forty lines: their imports and helpers in order, whatever the lines of their bodies need."""

from __future__ import annotations

import re
from collections.abc import Sequence

from keel.minify.tensor_literals import UNPACK

LINES = 40


def assemble(head: str, imports: Sequence[str], body: Sequence[str]) -> str:
    """A script of these parts, with what its expressions need of ``math`` and of packed tensors.  Raises ValueError for
    one of more than forty lines.
    """
    text = "\n".join(body)
    packed = "unpack(" in text
    plain = {
        *(i for i in imports if i.startswith("import ")),
        "import sys",
        *(["import base64", "import zlib"] if packed else []),
    }
    numbers = [n for n in ("inf", "nan") if re.search(rf"(?<![\w.]){n}(?!\w)", re.sub(r"'[^']*'|\"[^\"]*\"", "", text))]
    ours = [i for i in imports if i not in plain]
    keel = ["import keel"] if "keel." in text else []
    lines = [
        head,
        *sorted(plain),
        *([f"from math import {', '.join(numbers)}"] if numbers else []),
        "",
        "import torch",
        "",
        *keel,
        *ours,
        *([""] if keel or ours else []),
        *([*UNPACK, ""] if packed else []),
        *body,
    ]
    result = "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"
    if result.count("\n") > LINES:
        raise ValueError(f"The script would have {result.count(chr(10))} lines.")
    return result
