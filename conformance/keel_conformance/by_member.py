"""What the suite has for single members, each thing declared where it is defined: a rule, a property, a domain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from keel.opset import MEMBERS

T = TypeVar("T")


class ByMember(Generic[T]):
    """Collects things of one kind from a module: ``@rule("prod", "cumprod")`` says that the function below is the rule
    of these members, ``declare("mm", ...)`` what there is for one.
    """

    def __init__(self) -> None:
        self._found: dict[str, T] = {}

    def __call__(self, *members: str) -> Callable[[T], T]:
        """Raises ValueError for a name that is not a member, or that is declared already."""

        def below(thing: T) -> T:
            for name in members:
                self.declare(name, thing)
            return thing

        return below

    def declare(self, member: str, thing: T) -> None:
        """Raises ValueError as a call does."""
        if member not in MEMBERS or member in self._found:
            raise ValueError(f"{member} is not a member, or is declared twice.")
        self._found[member] = thing

    @property
    def declared(self) -> Mapping[str, T]:
        return MappingProxyType(self._found)
