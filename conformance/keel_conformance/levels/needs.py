"""What models need of a backend: operators, the dtypes and the layouts that they are called with, and whether sizes
change.

Needs are recorded by compiling a model with a backend that takes every call whole and runs it in eager PyTorch. So
they are the calls that a vendor's backend is asked about first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from keel import Backend, Call, KeelError, compile_exported, documents
from keel.loops import DTYPE_NAMES
from keel.opset import OPSET

from ..cases.layout_classes import LAYOUTS

Calls = Mapping[str, Mapping[str, frozenset[str]]]
"""Layouts of the arguments, by member and by dtype; dtypes have names such as ``f32``."""
FILE = "needs.json"
MOST_MEMBERS = 1 << 12


@dataclass(frozen=True)
class Needs:
    """``outside`` names the overloads that no member covers. They cannot be judged."""

    calls: Calls = field(default_factory=dict)
    dynamic: bool = False
    outside: frozenset[str] = frozenset()

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """Each operator with each of its dtypes."""
        return frozenset((op, dtype) for op, dtypes in self.calls.items() for dtype in dtypes)

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()

    def __or__(self, other: Needs) -> Needs:
        calls: dict[str, dict[str, frozenset[str]]] = {op: dict(dtypes) for op, dtypes in self.calls.items()}
        for op, dtypes in other.calls.items():
            for dtype, layouts in dtypes.items():
                merged = calls.setdefault(op, {})
                merged[dtype] = merged.get(dtype, frozenset()) | layouts
        return Needs(calls, self.dynamic or other.dynamic, self.outside | other.outside)

    def as_json(self) -> dict[str, Any]:
        calls = {
            op: {dtype: sorted(layouts) for dtype, layouts in sorted(dtypes.items())}
            for op, dtypes in sorted(self.calls.items())
        }
        return {"calls": calls, "dynamic": self.dynamic, "outside": sorted(self.outside)}


def union(several: Iterable[Needs]) -> Needs:
    result = Needs()
    for needs in several:
        result |= needs
    return result


def read_needs(item: documents.Item) -> Needs:
    """The needs in a document, as ``as_json`` wrote them. Raises Malformed."""
    fields = item.record(("calls", "dynamic", "outside"))
    calls = {
        op: {
            dtype: frozenset(one.one_of(LAYOUTS, "a layout") for one in layouts.items(len(LAYOUTS)))
            for dtype, layouts in dtypes.table(64).items()
        }
        for op, dtypes in fields["calls"].table(MOST_MEMBERS).items()
    }
    for op in calls:
        documents.Item(op, f"{item.place}.calls").text(200)
    outside = frozenset(name.text(200) for name in fields["outside"].items(MOST_MEMBERS))
    return Needs(calls, fields["dynamic"].flag(), outside)


def write_needs(folder: Path, needs: Needs | None) -> None:
    """Leaves the needs of a model in the folder of its run; nothing for a run that is not for a model."""
    if needs is not None:
        documents.replace_file(folder / FILE, f"{json.dumps(needs.as_json(), indent=1)}\n".encode())


def needs_in(folder: Path) -> Needs | None:
    """The needs of a model in the folder of a run; None if it has none. Raises KeelError[bad-file]."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        return read_needs(documents.Item(documents.parsed(documents.text_of(path))))
    except documents.Malformed as e:
        raise documents.bad_file(path, e, what="It does not say what a model needs.") from e


# -- recording ---------------------------------------------------------------------------------------------------------


@dataclass
class Recorder:
    """Backends that take every call, run it in eager PyTorch, and record what they are given."""

    needs: Needs = Needs()

    @property
    def backends(self) -> list[Backend]:
        """One for members of the operator set, and a last resort for calls that are not, and have no decomposition."""

        def supports(call: Call) -> str | None:
            return None if call.op in OPSET else f"{call.name} is not in the operator set."

        members = Backend(name="recorder", device="*", supports=supports, compile=self._compile)
        rest = replace(members, name="rest", supports=lambda call: None, last_resort=True)
        return [members, rest]

    def _compile(self, gm: fx.GraphModule) -> Callable[..., Any]:
        self.needs |= union(_of_node(node) for node in gm.graph.nodes if node.op == "call_function")
        return gm.forward


def needs_of_program(program: torch.export.ExportedProgram) -> Needs:
    """What an exported program needs. Raises what ``keel.compile_exported`` raises."""
    recorder = Recorder()
    compile_exported(program, backends=recorder.backends)
    if not recorder.needs.calls:
        raise KeelError("bad-option", "The model has no call of an operator that a backend could be judged by.")
    return recorder.needs


def _of_node(node: fx.Node) -> Needs:
    target: Any = node.target
    member = OPSET.get(target)
    if member is None:
        return Needs(outside=frozenset({str(target)} if hasattr(target, "overloadpacket") else ()))
    tensors = [v for n in node.all_input_nodes if isinstance(v := n.meta.get("val"), Tensor)]
    made = node.meta.get("val")
    results = [v for v in (made if isinstance(made, list | tuple) else [made]) if isinstance(v, Tensor)]
    dtype = deciding_dtype(t.dtype for t in tensors or results)
    if dtype is None:  # numbers and sizes are the host's
        return Needs()
    dynamic = any(not isinstance(n, int) for t in tensors for n in t.shape)
    layouts = frozenset(layout_of(t) for t in tensors) or frozenset({"contiguous"})
    return Needs({member.name: {DTYPE_NAMES[dtype]: layouts}}, dynamic)


def deciding_dtype(dtypes: Iterable[torch.dtype]) -> torch.dtype | None:
    """The dtype by which cases of a call are named: that of the first floating or complex operand; otherwise of the
    first operand that is not bool. None if no operand has a dtype that Keel knows.
    """
    known = [d for d in dtypes if d in DTYPE_NAMES]
    floats = [d for d in known if d.is_floating_point or d.is_complex]
    numbers = [d for d in known if d != torch.bool]
    return next(iter([*floats, *numbers, *known]), None)


def layout_of(x: Tensor) -> str:
    """The class of a tensor's strides, of those that cases are drawn in. Symbolic sizes count as contiguous."""
    pairs = [(n, s) for n, s in zip(x.shape, x.stride(), strict=True) if not (isinstance(n, int) and n == 1)]
    if not all(isinstance(v, int) for pair in pairs for v in pair) or 0 in x.shape or not pairs:
        return "contiguous"
    repeated = [k for k, (_, stride) in enumerate(pairs) if stride == 0]
    if repeated:
        return "expanded_last" if repeated[-1] == len(pairs) - 1 else "expanded"
    order = sorted(range(len(pairs)), key=lambda k: -pairs[k][1])
    if not _is_dense([pairs[k] for k in order]):
        return "rows_apart" if min(stride for _, stride in pairs) == 1 else "gapped"
    if order == sorted(order):
        offset = x.storage_offset()
        return "offset" if isinstance(offset, int) and offset else "contiguous"
    if len(pairs) == x.dim() and order in ([0, 2, 3, 1], [0, 2, 3, 4, 1]):
        return "channels_last"
    return "reversed" if len(order) > 2 and order == sorted(order, reverse=True) else "transposed"


def _is_dense(pairs: Sequence[tuple[int, int]]) -> bool:
    """True if elements of these sizes and strides, the largest stride first, stand one after the other."""
    step = 1
    for size, stride in reversed(pairs):
        if stride != step:
            return False
        step *= size
    return True
