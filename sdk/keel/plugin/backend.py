"""The graph level: a backend claims calls, and compiles graphs made of calls that it claimed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import fx

from keel.cost import Cost
from keel.plugin.api import ANSWER, API, CLAIMS, COMPILES, FINGERPRINT, PROBE, WARM_UP, checked_api
from keel.plugin.compile_context import PreparedConstants
from keel.plugin.graph_claims import Fusion, Veto
from keel.plugin.numeric_facts import IEEE, Arithmetic
from keel.plugin.options import Option, checked_options
from keel.plugin.support import Refuses, Rule, Support
from keel.plugin.target import LoopTarget
from keel.registration import bad, checked_call, checked_device, checked_flag, checked_name, checked_type
from keel.types import Call


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A graph-level backend.

    ``compile`` gets a functional FX graph whose nodes are ATen overloads with ``meta["val"]``, whose placeholders are
    the part's inputs (tensors, and ints where sizes are symbolic). It returns a callable that takes those positionally
    and returns a tuple of the graph's outputs. That must not write to its inputs, and returns each output with the
    dtype, shape, strides and device of its ``meta["val"]``. If the callable has an attribute ``boxed``, Keel calls that
    with the inputs in a list: if it empties the list, it can free each input after its last use. If ``compile`` has a
    parameter named ``ctx``, it gets the ``CompileContext``. If it is ``Staged``, parts are compiled in parallel.
    ``warm_up`` may do what no graph changes, such as building a launcher or hashing a compiler: it is called on a
    thread of its own, once per process, when the first graph is about to be captured. Nothing waits for it.
    A ``static`` backend, or one with a static row in its support table, is asked about symbolic calls with known sizes,
    and compiles a part with symbolic sizes once for each value of its sizes; where padding changes no result, sizes are
    rounded up. ``prefers`` says of a call that the backend takes whether it should have it although another backend
    takes it: where it returns False, and placement is by order, the call goes to the next backend that takes and
    prefers it. If results of an ``any_layout`` backend have other strides than promised, Keel copies them. Results
    that are views are not asked of such a backend: Keel makes them of the tensors that it returns. A backend is
    ``capturable`` if its parts launch all their work on the current stream of the device and wait for nothing. Mode
    ``reduce-overhead`` captures only the work of such backends.

    ``claim`` is an optional look at the whole graph after ``supports``. It gets a copy of the graph, and the set of the
    calls in it that the backend takes. It returns ``Fusion`` and ``Veto`` values: calls that run as one kernel, and
    calls that the backend leaves to others in this graph. It is asked twice about a graph, and answers the same.

    Compiled graphs are kept from one process to the next if each of their backends has a ``fingerprint``: a function
    that returns a text which changes whenever the backend might compile otherwise, or support other calls: with its own
    code, its compiler, or the machine. ``serialize`` turns what ``compile`` returned into bytes, and ``deserialize``
    turns the bytes into the same again, in another process; it gets the ``CompileContext`` if it has a parameter named
    ``ctx``. A part of a backend without them is compiled again in each process.
    """

    name: str
    device: str  # the torch device type of its tensors; * for any
    supports: Support | Refuses
    compile: Callable[..., Callable[..., Any] | PreparedConstants]
    probe: Callable[[], str | None] = lambda: None  # None, or a sentence that says why it cannot run here
    host_scalars: bool = False  # also asked about calls with 0-d tensors on cpu
    last_resort: bool = False  # takes only what no other backend takes
    cost: Cost | None = None  # its data sheet; without it, placement is by order only
    target: LoopTarget | None = None  # the target that ``loop_backend`` made it of
    warm_up: Callable[[], Any] | None = None
    static: bool = False  # its compiler needs known sizes, since API 2
    any_layout: bool = False  # its results may have any strides, since API 2
    capturable: bool = True  # False if device graphs cannot record its work, since API 2
    arithmetic: Arithmetic = IEEE  # numeric facts about it, since API 2
    options: tuple[Option, ...] = ()  # what users may set, since API 2
    prefers: Callable[[Call], bool] | None = None  # False for a call that others had better take, since API 2
    claim: Callable[[fx.GraphModule, frozenset[fx.Node]], Iterable[Fusion | Veto]] | None = None  # since API 2
    fingerprint: Callable[[], str] | None = None  # identifies its code, its compiler and the machine, since API 2
    serialize: Callable[[Any], bytes] | None = None  # of what ``compile`` returned, since API 2
    deserialize: Callable[..., Any] | None = None  # of the bytes, since API 2
    api: int = API

    def __post_init__(self) -> None:
        checked_name("A Backend", self.name)
        what = f"The Backend {self.name!r}"
        checked_device(what, self.device)
        if not isinstance(self.supports, Support):
            if isinstance(self.supports, Rule | tuple | list):
                bad(
                    f"{what} has supports={type(self.supports).__name__}(...), which is not a Support.",
                    "Wrap the rows: supports=Support((Rule(...),)).",
                )
            checked_call(what, "supports", self.supports, ANSWER, takes=1)
        checked_call(what, "compile", self.compile, COMPILES, takes=1, by_name="ctx")
        checked_call(what, "probe", self.probe, PROBE, takes=0)
        checked_flag(what, "host_scalars", self.host_scalars)
        checked_flag(what, "last_resort", self.last_resort)
        checked_flag(what, "static", self.static)
        checked_flag(what, "any_layout", self.any_layout)
        checked_flag(what, "capturable", self.capturable)
        checked_type(what, "cost", self.cost, (Cost, type(None)), "a data sheet, keel.Cost(...), or leave it out")
        checked_call(what, "warm_up", self.warm_up, WARM_UP, optional=True, takes=0)
        checked_call(
            what, "prefers", self.prefers, "it takes a Call, and returns True or False", optional=True, takes=1
        )
        checked_call(what, "claim", self.claim, CLAIMS, optional=True, takes=2)
        checked_call(what, "fingerprint", self.fingerprint, FINGERPRINT, optional=True, takes=0)
        checked_call(what, "serialize", self.serialize, "it takes what `compile` returned", optional=True, takes=1)
        loads = "it takes the bytes that `serialize` returned"
        checked_call(what, "deserialize", self.deserialize, loads, optional=True, takes=1, by_name="ctx")
        if (self.serialize is None) != (self.deserialize is None):
            bad(f"{what} has only one of `serialize` and `deserialize`.", "Write both, or leave both out.")
        if self.serialize is not None and self.fingerprint is None:
            bad(f"{what} has `serialize`, but no `fingerprint`.", "Its bytes are kept only under a fingerprint.")
        checked_type(what, "arithmetic", self.arithmetic, Arithmetic, "keel.plugin.Arithmetic(...)")
        object.__setattr__(self, "options", checked_options(what, self.options))
        checked_type(what, "target", self.target, (LoopTarget, type(None)), "keel.loop_backend(target), which sets it")
        checked_api(what, self.api)
