"""Finds where a program needs a barrier: its lanes do not see each other's stores without one."""

from __future__ import annotations

from keel.loops import Load, Loop, Store, walk


class Memory:
    """The loads and stores since the last barrier: the texts of the indices, by buffer."""

    def __init__(self) -> None:
        self.loads: dict[str, set[str]] = {}
        self.stores: dict[str, set[str]] = {}

    def settle(self) -> None:
        self.loads, self.stores = {}, {}

    def load(self, buffer: str, index: str) -> bool:
        """Records a load. True if a barrier is needed before it."""
        self.loads.setdefault(buffer, set()).add(index)
        return buffer in self.stores

    def store(self, buffer: str, index: str, origins: frozenset[tuple[str, str]] = frozenset()) -> bool:
        """Records a store of a value computed from the loads in ``origins``. True if a barrier is needed before it. A
        lane may overwrite elements that its own value was computed from.
        """
        others = [i for i in self.loads.get(buffer, ()) if i != index or (buffer, i) not in origins]
        waits = buffer in self.stores or bool(others)
        self.stores.setdefault(buffer, set()).add(index)
        return waits


def crosses_lanes(loop: Loop) -> bool:
    """True if an iteration may access an element that another lane stored in an earlier iteration."""
    inner = list(walk(loop.body))
    stores: dict[str, set[object]] = {}
    loads: dict[str, set[object]] = {}
    for s in inner:
        if isinstance(s, Store):
            stores.setdefault(s.buffer, set()).add(s.index)
        elif isinstance(s, Load):
            loads.setdefault(s.buffer, set()).add(s.index)
    return any(len(at) > 1 or loads.get(buffer, at) != at for buffer, at in stores.items())
