"""When the lanes of one program must wait for each other: they do not see each other's stores without a barrier."""

from __future__ import annotations

from keel.loops import Load, Loop, Store, walk


class Memory:
    """What was loaded and stored since the last barrier: per buffer, the texts of the indices."""

    def __init__(self) -> None:
        self.loads: dict[str, set[str]] = {}
        self.stores: dict[str, set[str]] = {}

    def settle(self) -> None:
        self.loads, self.stores = {}, {}

    def load(self, buffer: str, index: str) -> bool:
        """Notes a load; True if it must wait for a barrier first."""
        self.loads.setdefault(buffer, set()).add(index)
        return buffer in self.stores

    def store(self, buffer: str, index: str, origins: frozenset[tuple[str, str]] = frozenset()) -> bool:
        """Notes a store of a value made of the loads in ``origins``; True if it must wait for a barrier first.

        A lane may overwrite what its value was made of: it has it already.
        """
        others = [i for i in self.loads.get(buffer, ()) if i != index or (buffer, i) not in origins]
        waits = buffer in self.stores or bool(others)
        self.stores.setdefault(buffer, set()).add(index)
        return waits


def apart(loop: Loop) -> bool:
    """Whether an iteration may touch what another lane stored in an earlier one."""
    inner = list(walk(loop.body))
    stores: dict[str, set[object]] = {}
    loads: dict[str, set[object]] = {}
    for s in inner:
        if isinstance(s, Store):
            stores.setdefault(s.buffer, set()).add(s.index)
        elif isinstance(s, Load):
            loads.setdefault(s.buffer, set()).add(s.index)
    return any(len(at) > 1 or loads.get(buffer, at) != at for buffer, at in stores.items())
