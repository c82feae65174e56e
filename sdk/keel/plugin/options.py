"""Options of a backend's compiler: declared by the plugin, set by the user, checked by Keel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from keel.errors import KeelError
from keel.registration import bad, checked_type

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_KINDS = {bool: "True or False", int: "an integer", float: "a number", str: "a text"}
"""The types that a value may have, so that it can be written on a command line and in a file."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option that users of a backend named acme set with ``options={"acme.level": 3}``.

    ``type`` is bool, int, float or str. A value is of this type, and one of ``choices`` if there are any. ``default``
    is what ``CompileContext.options`` has if the user sets nothing; it is such a value or None. ``sentence`` says what
    the option does; ``keel backends`` shows it.
    """

    name: str
    type: type
    default: Any
    sentence: str
    choices: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            bad(f"An Option has the name {self.name!r}.", 'Write small letters, digits and _ only: name="level".')
        what = f"The Option {self.name!r}"
        if self.type not in _KINDS:
            bad(f"{what} has type={self.type!r}.", "Write bool, int, float or str.")
        checked_type(what, "choices", self.choices, (tuple, list), "a tuple of the values that are allowed")
        object.__setattr__(self, "choices", tuple(self.choices))
        for value in (*self.choices, *(() if self.default is None else (self.default,))):
            if (why := self.wrong(value)) is not None:
                bad(f"{what} has the value {value!r}.", f"It {why}.")
        if not isinstance(self.sentence, str) or not self.sentence.strip():
            bad(f"{what} has no sentence.", "Write what the option does: users read it in `keel backends`.")

    def wrong(self, value: object) -> str | None:
        """What a value must be, if it is not that; else None."""
        kinds = (int, float) if self.type is float else self.type
        if not isinstance(value, kinds) or (isinstance(value, bool) and self.type is not bool):
            return f"must be {_KINDS[self.type]}"
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(map(repr, self.choices))}"
        return None

    def checked(self, owner: str, value: object) -> Any:
        """The value. Raises KeelError[bad-option] if it is not one that the option may have."""
        if (why := self.wrong(value)) is not None:
            raise KeelError(
                "bad-option",
                f"The option {owner}.{self.name} is {value!r}, and {why}.",
                {owner: self.sentence},
                do=f"Leave it out for the default, {self.default!r}." if self.default is not None else None,
            )
        return value


def checked_options(what: str, options: object) -> tuple[Option, ...]:
    """The options of a backend. Raises KeelError[bad-plugin] if they are not, or if two have one name."""
    checked_type(what, "options", options, (tuple, list), "a tuple of keel.plugin.Option values")
    assert isinstance(options, Sequence)
    for option in options:
        checked_type(what, "options", option, Option, "a tuple of keel.plugin.Option values")
    names = [option.name for option in options]
    if twice := next((n for n in names if names.count(n) > 1), None):
        bad(f"{what} has two options named {twice!r}.", "Give each option a name of its own.")
    return tuple(options)
