"""Programs that are sequences of actions on one world, drawn so that each pair and each triple of actions occurs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

from .actions import ACTIONS, Action
from .context import Context
from .covering_sequence import covering_sequence, possible
from .program import Chapter
from .world import ANY_ACTION, World

PIECES: Mapping[tuple[str, int], int] = {("core", 2): 3, ("training", 2): 2, ("core", 3): 64, ("training", 3): 32}
"""Programs that all pairs and triples are divided among, by the profile that a backend is asked for. A program takes
some five seconds of CPU for compiling alone, and no case may take 30 seconds on a busy machine.
"""
BEFORE = 8
"""Actions with which a piece begins, from the end of the piece before it."""

states = Chapter("states")


def sequence(profile: str, strength: int, seed: int, *, costly: bool = False) -> Sequence[str]:
    """The names of actions so that all combinations of this ``strength`` stand in a row: those of the core, or those
    that only backends which train are asked for; with ``costly``, those that take long.
    """
    of = {n: a for n, a in ACTIONS.items() if profile in ("training", a.profile) and (costly or not a.costly)}
    only = {n for n, a in of.items() if a.costly} if costly else {n for n, a in of.items() if a.profile == profile}
    return _covering(tuple(of.items()), strength, seed, frozenset(only))


@cache
def _covering(of: tuple[tuple[str, Action], ...], strength: int, seed: int, only: frozenset[str]) -> Sequence[str]:
    return tuple(covering_sequence(dict(of), strength, seed, only))


def piece(profile: str, strength: int, number: int, seed: int) -> Sequence[str]:
    """One of the pieces of the sequence that has all combinations."""
    names = sequence(profile, strength, seed)
    size = -(-len(names) // PIECES[profile, strength])
    return names[max(0, number * size - BEFORE) : (number + 1) * size]


def perform(ctx: Context, names: Sequence[str], ended: Callable[[str], None] = lambda name: None) -> None:
    """Does the actions one after another; one whose needs do not hold is left out. ``ended`` is called after each."""
    world, recent = World(ctx), list[str]()
    for k, name in enumerate(possible(names, ACTIONS)):
        recent = [*recent, name][-3:]
        one = ACTIONS[name]
        world.title, world.clause = f"action {k}, {', then '.join(recent)}", one.clause
        one.do(world)
        world.look()
        ended(name)


NAMES: dict[str, Callable[[int], Sequence[str]]] = {}
"""From a program's name to what gives its actions by a seed."""


def _sequences() -> None:
    for profile in ("core", "training"):
        for name, names, smoke in (
            *((f"pairs-{k + 1}", partial(piece, profile, 2, k), True) for k in range(PIECES[profile, 2])),
            ("compilations", partial(sequence, profile, 2, costly=True), False),
            *((f"triples-{k + 1}", partial(piece, profile, 3, k), False) for k in range(PIECES[profile, 3])),
        ):
            if name == "compilations" and profile != "core":
                continue
            full = name if profile == "core" else f"{name}-of-{profile}"
            NAMES[f"{states.name}-{full}"] = names

            def body(ctx: Context, names: Callable[[int], Sequence[str]] = names) -> None:
                perform(ctx, names(ctx.seed))

            states(*_clauses(profile), name=full, smoke=smoke, profile=profile)(body)


def _clauses(profile: str) -> Sequence[str]:
    actions = [a.clause for a in ACTIONS.values() if profile in ("training", a.profile)]
    saved = ["contract.lifetimes.C3"] if profile == "training" else []
    return [c.removeprefix("contract.") for c in dict.fromkeys([*actions, *ANY_ACTION, *saved])]


_sequences()
