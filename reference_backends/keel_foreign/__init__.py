"""Any backend of ``torch.compile`` as a Keel backend, so that its parts and a vendor's can share one model."""

from __future__ import annotations

from collections.abc import Collection

import torch

from keel import Backend, Call, Cost, KeelError, Rule, Support
from keel.opset import OPSET
from keel.plugin import torch_compile_backend
from keel_foreign.cost_models import SHEETS

_MASKS = (torch.bool, torch.uint8)


def untraceable(call: Call) -> str | None:
    """Why such a backend cannot be given the call: everything is taken that traces as a pure function of its types."""
    if not hasattr(call.op, "overloadpacket"):
        return f"{call.name} is of higher order."
    name = call.op.overloadpacket.__name__
    if not call.out or _asserts(name) or (name.startswith("__i") if name.startswith("__") else name.endswith("_")):
        return f"{call.name} acts by what it does, not by what it returns."
    if torch.Tag.data_dependent_output in _tags(call) or _unknown_size(call):
        return f"{call.name} gives a size or a number that is known only when it has run."
    if "c10d" in call.name:
        return f"{call.name} talks to other processes, in an order that must not change."
    return None


def _asserts(name: str) -> bool:
    """Whether a call's result is only what makes an assertion come first: a compiler would believe it, and leave it
    out.
    """
    return name.startswith(("_functional_assert", "_functional_sym_constrain"))


def _tags(call: Call) -> Collection[torch.Tag]:
    tags: Collection[torch.Tag] = getattr(call.op, "tags", ())
    return tags


def _unknown_size(call: Call) -> bool:
    """Whether the call's result is as large as its data say; of some operators it is only where an index is a mask."""
    if torch.Tag.dynamic_output_shape not in _tags(call):
        return False
    member = OPSET.get(call.op)
    if member is None or member.sized_by != "masks":
        return True
    return any(t.dtype in _MASKS for t in call.tensors[1:])


def foreign(name: str, *, device: str = "*", cost: Cost | None = None) -> Backend:
    """The ``torch.compile`` backend of that name, compiling parts whose tensors live on ``device`` (``*``: on any).

    It is given each part as a graph of functional ATen calls with fake inputs, as AOTAutograd's result would be;
    forward and backward are parts like others, so it never sees autograd.  ``cost`` is its data sheet, by default
    that of ``SHEETS``, of a CPU.
    """

    def probe() -> str | None:
        try:
            torch_compile_backend(name)
        except KeelError as error:
            return error.what
        return None

    return Backend(
        name=name,
        device=device,
        supports=Support((Rule(ops=("*",), when=untraceable),)),
        compile=lambda gm: torch_compile_backend(name)(gm),
        probe=probe,
        cost=SHEETS.get(name) if cost is None else cost,
    )


inductor = foreign("inductor")
