"""Statements that the loop IR does not have: the renderer makes them of others."""

from __future__ import annotations

from dataclasses import dataclass

from keel.loops import Axis, Index, Load, Loaded, Position

BEYOND = 2**62
"""A bound that no address reaches."""


@dataclass(frozen=True, slots=True)
class Address(Position):
    """Where the element ``buffer[index]`` lies in memory, as a number."""

    buffer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked(Load):
    """A load of the element at an offset from an address: ``within``, and an axis times a value for each of ``steps``.

    ``index`` has all these values as terms, so that whatever reads indices knows what the element depends on;
    ``buffer`` is one of those that the address may lie in.
    """

    address: int
    within: Index
    steps: tuple[tuple[int, Axis], ...]

    @property
    def chosen(self) -> tuple[int, ...]:
        """The values that tell where it reads."""
        return (self.address, *(v for v, _ in self.steps))

    @classmethod
    def at(
        cls, address: int, within: Index, steps: tuple[tuple[int, Axis], ...], of: Load, result: int, mask: int | None
    ) -> Picked:
        values = Index(0, tuple((Loaded(v, BEYOND), 1) for v in (address, *(v for v, _ in steps))))
        along = Index(0, tuple((axis, BEYOND) for _, axis in steps))
        return cls(
            result, of.buffer, within + values + along, of.dtype, mask, address=address, within=within, steps=steps
        )
