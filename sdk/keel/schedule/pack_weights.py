"""Finds library calls whose weights last from call to call, and what can be folded into the weights.

Libraries work on weights in layouts of their own, and convert a weight at every call. Where the weight is a parameter
of an inference graph, it is packed once and again after it has changed (``LastingValue``). Arithmetic with a number for
each channel, such as a batch norm in inference, is folded into the packed weight. The library adds a tensor and applies
an activation on the way out, where it has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from keel.graph.calls import call_of, type_of
from keel.graph.module_paths import common_path, module_path
from keel.plugin import CompileContext, Extern, LayoutPreference, PackedForm
from keel.schedule.inline import Hint, bytes_of
from keel.schedule.packed_call import ARITHMETIC, PackedCall, Recipe
from keel.schedule.tensor_graph import Instead, Slot
from keel.spec import bind
from keel.torch_adapter import has_effect, is_random, map_leaves
from keel.types import TensorType

Calls = Mapping[fx.Node, tuple[Extern, tuple[fx.Node, ...]]]
MOST_BYTES = 3 * 2**25
"""The most bytes of packed weights in a part, unless half the bytes of its parameters are more. 16-bit copies of all
parameters take that half, and eager PyTorch keeps them during autocast. The parameters are held as well.
"""


def pack_weights(gm: fx.GraphModule, externs: Mapping[str, Extern], ctx: CompileContext, hint: Hint) -> Instead:
    """Returns the calls with packed weights, which are computed from ``ctx.lasting``.

    Calls whose results are large relative to their weights come first: they gain most for each byte that is held.
    ``hint`` estimates symbolic sizes. The bytes that are held are bounded, unless ``ctx.spends_memory``.
    """
    if not ctx.lasting or not any(e.packed for e in externs.values()):
        return Instead()
    finder = _Finder(gm, externs, ctx)
    chains = [c for n in gm.graph.nodes if (c := finder.chain(n)) is not None]

    def size(node: Any) -> int:
        return bytes_of(hint, _tensor(node))

    most = max(MOST_BYTES, sum(size(n) for n in finder.lasting if n.op == "placeholder") // 2)
    held, calls, absorbed = 0, dict[fx.Node, tuple[Extern, tuple[fx.Node, ...]]](), set[fx.Node]()
    modules: dict[fx.Node, str] = {}
    for chain in sorted(chains, key=lambda c: size(c.weight) / max(1, size(c.last))):
        if (ctx.spends_memory or held + size(chain.weight) <= most) and ctx.fuel.take():
            held += size(chain.weight)
            calls[chain.last] = finder.call(chain)
            modules[chain.last] = common_path(map(module_path, chain.nodes))
            absorbed.update(chain.nodes[:-1])
    return Instead(calls, _unused(gm, calls, absorbed), modules)


def _unused(gm: fx.GraphModule, calls: Calls, absorbed: Set[fx.Node]) -> Set[fx.Node]:
    """Returns the calls whose results nothing needs any more, and the absorbed ones."""
    arguments = {t for _, tensors in calls.values() for t in tensors}
    gone = set(absorbed)
    for node in reversed(gm.graph.nodes):
        users_are_gone = node.users and all(u in gone or u in calls for u in node.users)
        if node.op == "call_function" and node not in arguments and node not in calls and users_are_gone:
            gone.add(node)
    return gone


@dataclass
class _Chain:
    """A call, and the nodes behind it that it takes over. ``operands`` are those of ``folded``, in order."""

    extern: Extern
    form: PackedForm
    nodes: list[fx.Node]
    folded: list[str] = field(default_factory=list)
    operands: list[Any] = field(default_factory=list)
    other: fx.Node | None = None
    then: str | None = None

    @property
    def last(self) -> fx.Node:
        return self.nodes[-1]

    @property
    def weight(self) -> Any:
        return self.nodes[0].args[self.form.facts.weight]


class _Finder:
    def __init__(self, gm: fx.GraphModule, externs: Mapping[str, Extern], ctx: CompileContext):
        self.externs, self.ctx = externs, ctx
        self.lasting: dict[fx.Node, None] = {}
        for node in gm.graph.nodes:
            if self._lasts(node):
                self.lasting[node] = None

    def _lasts(self, node: fx.Node) -> bool:
        """True for parameters, and for what is computed from them alone."""
        if node.op == "placeholder":
            return node.name in self.ctx.lasting and isinstance(node.meta.get("val"), torch.Tensor)
        call = call_of(node) if node.op == "call_function" else None
        if call is None or is_random(call.op) or has_effect(call.op) or len(call.out) != 1:
            return False
        inputs = node.all_input_nodes
        return bool(inputs) and isinstance(call.out[0], TensorType) and all(n in self.lasting for n in inputs)

    # -- the nodes of a call ------------------------------------------------------------------------------------------

    def chain(self, node: fx.Node) -> _Chain | None:
        """Returns the call of ``node`` with the nodes behind it; None if its weight cannot be packed."""
        extern = self.externs.get(str(node.target)) if node.op == "call_function" else None
        form = extern.packed if extern is not None else None
        if extern is None or form is None or not self._takes(form, node):
            return None
        chain = _Chain(extern, form, [node])
        while (user := self._only_user(chain.last)) is not None and self._folds(chain, user):
            chain.nodes.append(user)
        if (user := self._only_user(chain.last)) is not None:
            chain.then = form.facts.then.get(str(user.target))
            if chain.then is not None or self._adds(chain, user):
                chain.nodes.append(user)
        return chain

    def _takes(self, form: PackedForm, node: fx.Node) -> bool:
        facts, call = form.facts, call_of(node)
        assert call is not None
        (out,) = call.out
        image, weight = node.args[facts.image], node.args[facts.weight]
        bias = None if facts.bias is None else node.args[facts.bias]
        if not isinstance(out, TensorType) or out.device.type != "cpu" or not self._takes_dtype(form, out.dtype):
            return False
        parameters = weight in self.lasting and (bias is None or bias in self.lasting)
        return parameters and image not in self.lasting and facts.worth(bind(call))

    def _takes_dtype(self, form: PackedForm, dtype: torch.dtype) -> bool:
        if form.takes(dtype):
            return True
        return self.ctx.spends_memory and form.takes_for_speed is not None and form.takes_for_speed(dtype)

    def _only_user(self, node: fx.Node) -> fx.Node | None:
        """Returns the one user of a node, if that is a call with a result of the same type."""
        (user, *more) = node.users
        if more or user.op != "call_function" or user.kwargs:
            return None
        if user.args[0] is not node or not isinstance(user.meta.get("val"), torch.Tensor):
            return None
        return user if _tensor(user) == _tensor(node) else None

    def _folds(self, chain: _Chain, user: fx.Node) -> bool:
        """Adds arithmetic with a number for each channel to the chain."""
        value = _tensor(user)
        if str(user.target) not in ARITHMETIC or value.dtype != torch.float32:
            return False
        operand = user.args[1]
        if isinstance(operand, fx.Node):
            if operand not in self.lasting:
                return False
            factors = _tensor(operand)
            aligned = (1,) * (value.rank - factors.rank) + factors.shape
            channels = (1, value.shape[1], *[1] * (value.rank - 2))
            if factors.dtype != value.dtype or aligned not in (channels, (1,) * value.rank):
                return False
        elif isinstance(operand, bool) or not isinstance(operand, int | float):
            return False
        chain.folded.append(str(user.target))
        chain.operands.append(operand)
        return True

    def _adds(self, chain: _Chain, user: fx.Node) -> bool:
        """Adds a sum with another tensor of the same type to the chain, unless a kernel can make the sum for its own
        use.
        """
        other = user.args[1] if str(user.target) == "aten.add.Tensor" else None
        if not isinstance(other, fx.Node) or other is chain.last or other in self.lasting:
            return False
        if not isinstance(other.meta["val"], torch.Tensor):
            return False
        a, b = _tensor(chain.last), _tensor(other)
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return False
        one, *more = user.users
        if not more and one.op == "call_function" and str(one.target) not in self.externs:
            return False
        chain.other = other
        return True

    # -- the call that takes their place ------------------------------------------------------------------------------

    def call(self, chain: _Chain) -> tuple[Extern, tuple[fx.Node, ...]]:
        first, facts = chain.nodes[0], chain.form.facts
        places = {facts.image, facts.weight, facts.bias}
        bias = None if facts.bias is None else first.args[facts.bias]
        values = [chain.weight, bias, *chain.operands]
        parameters, recipe = self._recipe(values)
        rest = tuple(a for k, a in enumerate(first.args) if k not in places)
        adds = chain.other is not None
        then = None if chain.then is None else (chain.last.target, chain.then)
        run = PackedCall(chain.form, rest, recipe, tuple(chain.folded), adds, then)  # type: ignore[arg-type]
        layout = None
        if chain.extern.layout is not None:
            layout = LayoutPreference(arguments=(0, 1) if adds else (0,), results=(0,), passes=2)
        extern = Extern(run=run, layout=layout)
        tensors = [first.args[facts.image], *([chain.other] if adds else []), *parameters]
        return extern, tuple(tensors)  # type: ignore[arg-type]

    def _recipe(self, values: list[Any]) -> tuple[list[fx.Node], Recipe]:
        """Returns the parameters that ``values`` are computed from, and the calls that compute them."""
        needed = set(self._needed(values))
        order = [n for n in self.lasting if n in needed]
        parameters = [n for n in order if n.op == "placeholder"]
        calls = [n for n in order if n.op != "placeholder"]
        numbers = {n: Slot(k) for k, n in enumerate((*parameters, *calls))}

        def slots(tree: Any) -> Any:
            return map_leaves(lambda leaf: numbers[leaf] if isinstance(leaf, fx.Node) else leaf, tree)

        steps = tuple((n.target, slots(tuple(n.args)), slots(dict(n.kwargs))) for n in calls)
        return parameters, Recipe(steps, tuple(map(slots, values)))  # type: ignore[arg-type]

    def _needed(self, values: list[Any]) -> Iterator[fx.Node]:
        todo = [w for w in values if isinstance(w, fx.Node)]
        while todo:
            node = todo.pop()
            yield node
            todo += node.all_input_nodes


def _tensor(node: fx.Node) -> TensorType:
    """The type of a node that is a tensor. Symbolic sizes are compared as expressions: PyTorch would guard on them."""
    type = type_of(node.meta["val"])
    assert isinstance(type, TensorType)
    return type
