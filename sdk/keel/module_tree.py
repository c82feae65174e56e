"""The calls of a graph by the user's modules: a tree, in which repeated layers are one node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from keel.reports import PartReport


@dataclass(frozen=True)
class ModuleNode:
    """A module, or several siblings that are alike. ``names`` are their names in their parent; the root has none.
    ``calls`` are the numbers of calls inside one of them by backend, and ``operators`` those of calls that are directly
    in it, by backend and operator.
    """

    names: tuple[str, ...]
    calls: Counter[str]
    operators: Counter[tuple[str, str]]
    children: tuple[ModuleNode, ...]

    @property
    def name(self) -> str:
        """``attention``, or ``0 to 11`` for 12 layers, or ``0, 2``."""
        if len(self.names) < 2:
            return "".join(self.names)
        numbers = [*map(int, self.names)]
        is_range = len(numbers) > 2 and numbers == [*range(numbers[0], numbers[-1] + 1)]
        return f"{numbers[0]} to {numbers[-1]}" if is_range else ", ".join(self.names)

    @property
    def shape(self) -> Hashable:
        """Equal for modules that make the same calls on the same backends in modules of the same names."""
        inside = tuple((child.names, child.shape) for child in self.children)
        return frozenset(self.operators.items()), inside


@dataclass
class _Module:
    operators: Counter[tuple[str, str]] = field(default_factory=Counter)
    children: dict[str, _Module] = field(default_factory=dict)


def module_tree(parts: Sequence[PartReport]) -> ModuleNode:
    """The tree of the calls of these parts. Its root has the calls outside of known modules."""
    root = _Module()
    for part in parts:
        for path, operators in part.modules.items():
            module = root
            for name in path.split(".") if path else ():
                module = module.children.setdefault(name, _Module())
            module.operators.update({(part.owner, operator): count for operator, count in operators.items()})
    return _node((), root)


def _node(names: tuple[str, ...], module: _Module) -> ModuleNode:
    children = tuple(_folded([_node((name,), child) for name, child in module.children.items()]))
    calls: Counter[str] = Counter()
    for (backend, _), count in module.operators.items():
        calls[backend] += count
    for child in children:
        calls.update({backend: count * len(child.names) for backend, count in child.calls.items()})
    return ModuleNode(names, calls, module.operators, children)


def _folded(nodes: Sequence[ModuleNode]) -> Iterator[ModuleNode]:
    """The nodes, with numbered ones of the same shape as one."""
    alike: dict[Hashable, list[ModuleNode]] = {}
    for node in nodes:
        key = node.shape if node.name.isdecimal() else node.names
        alike.setdefault((node.name.isdecimal(), key), []).append(node)
    for same in alike.values():
        first = same[0]
        yield ModuleNode(tuple(n for node in same for n in node.names), first.calls, first.operators, first.children)
