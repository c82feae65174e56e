"""From compiled parts to one callable: straight-line Python, written once per graph, with nothing left to decide."""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from keel.errors import KeelError
from keel.graph.calls import is_call, where
from keel.torch_adapter import Boxed


@dataclass(frozen=True)
class Linkable:
    """A compiled part: takes the values of the nodes ``inputs`` positionally, returns those of ``outputs`` as a tuple.

    ``first`` is called in place of ``run`` until it has returned once.  ``owner`` names the backend that compiled it,
    ``trouble`` has the errors of those that could not.
    """

    name: str
    run: Callable[..., Sequence[Any]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    first: Callable[..., Sequence[Any]] | None = None
    owner: str = ""
    trouble: tuple[KeelError, ...] = ()


def link(gm: fx.GraphModule, parts: Sequence[Linkable], constants: Mapping[str, torch.Tensor]) -> Boxed:
    """The graph as a callable that takes its inputs (less the constants) in a list and returns the list of its outputs.

    It empties the list, and drops every value after its last use.  Sizes that the graph returns are computed in line.
    What a part raises passes through, with a note that names the part, its owner and the user's lines.  A part is given
    no tensor whose conjugate or negative is still to be taken.
    """
    text, names = _text(gm, parts, constants)
    names["blame"] = _blame(text, {part.name: part for part in parts}, gm)
    # The checks of a first call take themselves out by putting the bare part in their own place.
    for part in parts:
        names[part.name] = part.run if part.first is None else _once(names, part.name, part.first, part.run)
    exec(compile(text, f"<keel {gm.meta.get('keel.name', 'graph')}>", "exec"), names)
    run: Boxed = names["run"]
    run.__doc__ = text
    return run


def _once(names: dict[str, Any], name: str, first: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*args: Any) -> Any:
        results = first(*args)
        names[name] = then
        return results
    return checked


def _blame(text: str, parts: Mapping[str, Linkable], gm: fx.GraphModule) -> Callable[[Exception], None]:
    """Notes on an exception which part it comes from, told by the line of ``text`` that was running."""
    lines = text.splitlines()
    nodes = {node.name: node for node in gm.graph.nodes}

    def blame(raised: Exception) -> None:
        trace = raised.__traceback__
        line = lines[trace.tb_lineno - 1] if trace else ""
        part = parts.get(line.rpartition("=")[2].strip().partition("(")[0])
        if part is None or isinstance(raised, KeelError):
            return
        places = dict.fromkeys(at for name in part.outputs if (at := where(nodes[name])))
        raised.add_note("\n".join([f"Raised in part {part.name}, which {part.owner} compiled.",
                                   *(f"  at {at}" for at in list(places)[:3])]))
    return blame


def _text(gm: fx.GraphModule, parts: Sequence[Linkable],
          constants: Mapping[str, torch.Tensor]) -> tuple[str, dict[str, Any]]:
    nodes = {n.name: n for n in gm.graph.nodes}
    results = list(gm.graph.output_node().args[0])  # type: ignore[arg-type]
    names: dict[str, Any] = {f"c_{name}": settled(tensor) for name, tensor in constants.items()}
    names["settled"], lazy = settled, _lazy(gm) - constants.keys()
    inputs = [n.name for n in gm.graph.find_nodes(op="placeholder") if n.name not in constants]
    sizes = _sizes(r for r in results if isinstance(r, fx.Node))
    last = _last_uses(parts, [r.name for r in results if isinstance(r, fx.Node)] +
                      [a.name for s in sizes for a in s.all_input_nodes])

    def value(name: str) -> str:
        return f"c_{name}" if name in constants else f"v_{name}"

    lines, first = [], {n: i for i, part in reversed([*enumerate(parts)]) for n in part.inputs}
    if inputs:
        lines += [f"    {', '.join(map(value, inputs))}, = args"]
    lines += ["    args.clear()"]
    unused = [i for i in inputs if i not in last]
    lines += [f"    del {', '.join(map(value, unused))}"] if unused else []
    for i, part in enumerate(parts):
        lines += [f"    {value(n)} = settled({value(n)})" for n in dict.fromkeys(part.inputs)
                  if n in lazy and first[n] == i]
        call = f"{part.name}({', '.join(map(value, part.inputs))})"
        lines.append(f"    {', '.join(map(value, part.outputs))}, = {call}" if part.outputs else f"    {call}")
        dead = [n for n in dict.fromkeys((*part.inputs, *part.outputs)) if last.get(n, i) == i and n not in constants]
        lines += [f"    del {', '.join(map(value, dead))}"] if dead else []
    for node in sizes:
        lines.append(f"    {value(node.name)} = {_size(node, value, names)}")
    lines.append(f"    return [{', '.join(value(r.name) if isinstance(r, fx.Node) else repr(r) for r in results)}]")
    missing = {r.name for r in results if isinstance(r, fx.Node)} - nodes.keys()
    assert not missing, missing
    body = "".join(f"    {line}\n" for line in lines)
    end = "    except Exception as raised:\n        blame(raised)\n        raise\n"
    return f"def run(args):\n    try:\n{body}{end}", names


def settled(x: torch.Tensor) -> torch.Tensor:
    """``x``, or a copy with its strides where PyTorch leaves to its readers to take the conjugate or the negative."""
    if not x.is_conj() and not x.is_neg():
        return x
    span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
    return x.as_strided((span,), (1,)).resolve_conj().resolve_neg().as_strided(x.shape, x.stride())


def _lazy(gm: fx.GraphModule) -> set[str]:
    """The nodes whose tensors may leave that to their readers: complex ones, parts of these, and what came so."""
    values = {n.name: v for n in gm.graph.nodes if isinstance(v := n.meta.get("val"), torch.Tensor)}
    mixed = any(v.is_complex() for v in values.values())
    return {name for name, v in values.items()
            if v.is_complex() or v.is_neg() or (mixed and v.is_floating_point())}


def _last_uses(parts: Sequence[Linkable], kept: Sequence[str]) -> dict[str, int]:
    """The number of the part that uses each value last; values that are ``kept`` to the end have one past them all."""
    last = {name: i for i, part in enumerate(parts) for name in part.inputs}
    return last | dict.fromkeys(kept, len(parts))


def _sizes(results: Iterable[fx.Node]) -> list[fx.Node]:
    """The arithmetic on sizes that results need, in order."""
    found: dict[fx.Node, None] = {}

    def visit(node: fx.Node) -> None:
        if node in found or not is_size(node):
            return
        for a in node.all_input_nodes:
            visit(a)
        found[node] = None

    for r in results:
        visit(r)
    return list(found)


def is_size(node: fx.Node) -> bool:
    """Whether a node computes a number from numbers or from a tensor's sizes: no work for a backend."""
    return (node.op == "call_function" and node.target is not operator.getitem and not is_call(node)
            and isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool | int | float))


def _size(node: fx.Node, value: Callable[[str], str], names: dict[str, Any]) -> str:
    function = f"f_{node.name}"
    names[function] = node.target
    args = [value(a.name) if isinstance(a, fx.Node) else repr(a) for a in node.args]
    return f"{function}({', '.join(args)})"
