"""Every error Keel raises on purpose: a code in words, and one formatter for them all.

A message says what could not be done, on what, each party's reason, where in the user's code, and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# Codes are words; each has a page docs/errors/<code>.md.
CODES = (
    "no-owner",  # no backend takes an operator
    "no-room",  # no placement fits into the memory that data sheets give
    "unknown-backend",  # a name that no entry point carries
    "broken-plugin",  # a plugin that cannot be imported or is not a Backend
    "bad-plugin",  # a plugin's declaration is invalid: a name, a table, a hook, a number
    "api-version",  # a plugin made for another version of the plugin API
    "not-here",  # a backend whose probe says that it cannot run on this machine, or machine code for another machine
    "missing-extra",  # a package that an extra of torch-keel installs is not there
    "refuse-raised",  # a plugin's own hook raised
    "cost-raised",  # a function of a data sheet raised, or returned no number of seconds
    "compile-raised",
    "run-raised",  # a compiled part tried to exit Python
    "wrong-result",  # a compiled part returned something other than the types it promised
    "out-of-opset",  # a graph holds what the operator set leaves out by decision
    "bad-graph",  # a graph or a kernel breaks an invariant of its stage
    "bad-plan",  # a placement fails its certificate
    "bad-text",  # text that does not parse
    "bad-file",  # a file that is not what it has to be: a saved graph, a data sheet, a log, waivers
    "bad-artifact",  # a compiled graph that cannot be saved, or that does not fit where it is loaded
    "bad-option",  # an option that does not exist, or has the wrong type
    "bad-input",  # arguments that an exported or saved program was not made for
    "bad-index",  # an index, itself data, that lies outside of the dimension that it counts in
    "opset-version",  # a graph of an opset, or of a PyTorch, that has other operators
    "no-lowering",  # an operator has no loop form and no extern
    "build-failed",  # the target's toolchain rejected a source
)


_UNPRINTED = re.compile("[^\\t\\n -~\\xa0-\\u2027\\u202f-\\u2065\\u206a-\\ud7ff\\ue000-\\U0010ffff]")


def count(number: int, what: str) -> str:
    """``1 call``, ``2 calls``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """A text with codes in place of control characters, bidirectional marks and invalid characters, because messages
    contain names and texts from untrusted files.
    """
    return _UNPRINTED.sub(lambda match: ascii(match[0])[1:-1], text)


@dataclass(eq=False)
class KeelError(Exception):
    """An error raised on purpose.

    ``what`` is one sentence; ``reasons`` maps a party (a backend, a rule) to its sentence; ``where`` is the user's
    source line; ``do`` says what to try. ``aspect`` says, for code, which property of a result is wrong where the code
    is ``wrong-result``: ``type``, ``dtype``, ``device``, ``shape``, ``strides`` or ``values``.
    """

    code: str
    what: str
    reasons: Mapping[str, str] | None = None
    where: str | None = None
    do: str | None = None
    aspect: str | None = field(default=None, kw_only=True)

    def __str__(self) -> str:
        lines = [f"KeelError[{self.code}]: {self.what}"]
        lines += [f"  {party}: {sentence}" for party, sentence in (self.reasons or {}).items()]
        if self.where:
            lines.append(f"  at {self.where}")
        if self.do:
            lines.append(self.do)
        return printable("\n".join(lines))


class BadIndex(KeelError, IndexError, RuntimeError):
    """KeelError[bad-index]. It is also an IndexError and a RuntimeError, because eager PyTorch raises one or the other:
    an IndexError in most operators, a RuntimeError in ``gather`` and some losses. The compiled operator does not tell
    which: some losses that ``gather`` looks up raise one, and some the other.
    """


class KeelWarning(UserWarning):
    """Something Keel worked around and thinks the user should see."""


def message_of(raised: BaseException) -> str:
    """The message of a foreign exception; empty if ``str`` of it raises."""
    try:
        return str(raised)
    except Exception:
        return ""


def first_line(raised: BaseException) -> str:
    """``ValueError: message``, with the first line of the message; ``ValueError.`` if it has no message."""
    lines = message_of(raised).strip().splitlines()
    return f"{type(raised).__name__}: {lines[0]}" if lines else f"{type(raised).__name__}."
