"""``keel bench --calibrate``: a backend's data sheet as this machine shows it, timed on parts that it compiled.

Each rate is read off a part made for it: one addition of large tensors, a chain of elementwise calls that stay in
cache, chains of calls too small to be any work, and of products of large matrices.  What a product or a convolution
takes in a model is what chains of them take more the longer they are; what a convolution takes besides by itself is the
border of a layout.
"""

from __future__ import annotations

import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import fx

import keel
from keel import Backend, Cost
from keel.plugin import CompileContext

from .run_time import finish, now
from .uncertainty import blocks, doubts, predicted

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
NEEDED = frozenset({"a few calls", "many calls", "an addition", "additions", "a mixture", "torch.float32"})
"""The probes that every backend must take."""
SHORT = 2e-4
"""Seconds within which a device that is as fast as a GPU multiplies the smaller matrices."""
ROW = 3
"""Convolutions in a long chain; a short one has one."""
PAIR = 2
"""Large products in a short chain; a long one has twice as many."""
NOISE_FLOOR = 0.5
"""The least border that is more than noise."""
LEAST = 0.1
"""The smallest weight that an operator gets, should it seem to take no time."""
FEW, MANY, CHAIN = 2, 32, 8
"""Calls in a short chain of tiny products, calls more in a long one, and calls in a chain of elementwise ones."""
PATIENCE = 0.3
"""Seconds that each part is run for, in turns with those of the other backends; the fastest run counts."""
SLICE = 0.001
"""Seconds that a part has its turn for, at least one run of it: short, for a busy machine interrupts long ones."""


@dataclass(frozen=True)
class Probed:
    """A device, and the sizes of the probes for it: the rows and columns of the matrices that are multiplied, the
    elements that do not stay in a cache and those that do, and the images that are convolved at once.
    """

    device: str
    product: int
    large: int
    small: int
    images: int

    def rand(self, *shape: int) -> torch.Tensor:
        """Numbers in [0, 1): drawn on the host, for a device may lack a kernel that draws."""
        return torch.rand(shape, device="cpu").to(self.device)


def probed(device: str) -> Probed:
    """The device with sizes that take it a moment: larger ones for one that is as fast as a GPU."""
    less, more = Probed(device, 1024, 1 << 22, 1 << 14, 4), Probed(device, 8192, 1 << 26, 1 << 20, 64)
    x = less.rand(less.product, less.product)
    torch.mm(x, x)  # the first call loads a library
    return more if min(_timed((torch.mm, (x, x)), 1, device) for _ in range(3)) < SHORT else less


Part = tuple[Callable[..., Any], tuple[Any, ...]]
Built = tuple[fx.GraphModule, Callable[..., Any], tuple[Any, ...]]
Probe = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]
Report = Callable[[int, str], None]
"""Called with the number and the title of a probe that begins."""
Times = Mapping[str, float]
"""The seconds of each probe; those that the backend does not take are missing."""


def silent(number: int, title: str) -> None:
    """Reports nothing."""


def calibrate(backends: Sequence[Backend], device: str, report: Report = silent) -> dict[str, Cost]:
    """The measured sheet of each backend, by name; what cannot be measured from outside (a link, memory, overrides) is
    that of its own sheet.  A backend that has no tensors on ``device`` is measured on its own. ``report`` gets the
    number and the title of each probe before it is timed.

    Raises what compiling raises for a backend that does not take additions and products in float32.
    """
    homes = {b.name: device if b.device in ("*", device) else b.device for b in backends}
    places = dict.fromkeys(homes.values())
    groups = (_together([b for b in backends if homes[b.name] == home], home, report) for home in places)
    sheets = {name: sheet for some in groups for name, sheet in some.items()}
    return {b.name: sheets[b.name] for b in backends}


def _together(backends: Sequence[Backend], device: str, report: Report) -> dict[str, Cost]:
    times: dict[str, dict[str, float]] = {b.name: {} for b in backends}
    models: dict[str, dict[str, fx.GraphModule]] = {b.name: {} for b in backends}
    on, known = probed(device), [title for title, _ in blocks(device)]
    for number, (title, (fn, args)) in enumerate(chain(_probes(on), blocks(device)), 1):
        report(number, title)
        parts = {b.name: made for b in backends if (made := _built(b, fn, args, title not in NEEDED)) is not None}
        for name, seconds in _fastest({name: made[1:] for name, made in parts.items()}, device).items():
            times[name][title] = seconds
            if title in known:
                models[name][title] = parts[name][0]
    sheets = {b.name: _sheet(b.cost, times[b.name], on) for b in backends}
    roomy = [replace(b, cost=replace(sheets[b.name], memory=math.inf)) for b in backends]
    predictions = {b.name: {title: predicted(gm, b) for title, gm in models[b.name].items()} for b in roomy}
    return {name: replace(sheets[name], doubt=doubt) for name, doubt in doubts(predictions, times).items()}


def write(
    path: Path,
    backends: Sequence[str],
    device: str,
    threads: int,
    report: Report = silent,
) -> dict[str, Cost]:
    """Measures the backends of these names and writes their sheets to ``path``, together with those that it has of
    others.
    """
    torch.set_num_threads(threads)
    had = _sheets(path) if path.exists() else {}
    result = calibrate([keel.testing.find(name) for name in backends], device, report)
    machine = {"processor": _processor(device), "threads": threads, "torch": torch.__version__}
    text = json.dumps(
        {"machine": machine, "sheets": had | {n: _rounded(c.as_json()) for n, c in result.items()}}, indent=1
    )
    path.write_text(text + "\n")
    return result


def _sheets(path: Path) -> dict[str, Any]:
    """The sheets that a file has, as data.  Raises KeelError[bad-file] where it has none."""
    try:
        text = keel.documents.text_of(path)
        document = keel.documents.Item(keel.documents.parsed(text)).record(("sheets",), ("machine",))
        return {name: sheet.value for name, sheet in document["sheets"].table(1 << 10).items()}
    except keel.documents.Malformed as e:
        raise keel.documents.bad_file(path, e, what="It holds no data sheets.", do="Write to another file.") from e


def _probes(on: Probed) -> Iterator[tuple[str, Probe]]:
    tiny = on.rand(2, 2)
    yield "a few calls", (_products(FEW), (tiny,))
    yield "many calls", (_products(FEW + MANY), (tiny,))
    large, small = (on.rand(n) for n in (on.large, on.small))
    yield "an addition", (lambda x, y: x + y, (large, large.clone()))
    yield "additions", (_added, (large, large.clone()))
    yield "a mixture", (_mixed, (small, small.clone()))
    for kind, probe, _ in _kinds(on):
        yield kind, probe
    for layer in _layers():
        yield layer.title(1), layer.probe(on, 1)
        yield layer.title(ROW), layer.probe(on, ROW)
    wide = on.product // 2
    tall = on.rand(8 * wide, wide)
    kernels = [on.rand(wide, wide) / wide for _ in range(ROW)]
    yield "a layer", (_layers_of, (tall, kernels[0]))
    yield "layers", (_layers_of, (tall, *kernels))
    for dtype in DTYPES:
        x = (on.rand(on.product, on.product) * 2 / on.product).to(dtype)
        yield str(dtype), (_multiplied(PAIR), (x, x.clone()))
        yield f"more {dtype}", (_multiplied(2 * PAIR), (x, x.clone()))


def _kinds(on: Probed) -> Iterator[tuple[str, Probe, float]]:
    """One call of each kind of operator, and its work as :mod:`keel.cost` counts it.  Its tensors stay in a cache, and
    are large enough for its time to be seen beside that of entering a part.
    """
    n, wide = 16 * on.small, on.product // 64
    rows = on.rand(n // 256, 256)
    for function in (torch.exp, torch.log, torch.tanh, torch.erf, torch.sigmoid, torch.sin, torch.sqrt):
        yield f"aten.{function.__name__}", (function, (rows,)), n
    yield "aten.pow", (lambda x: x**1.7, (rows,)), n
    yield "aten._softmax", (lambda x: torch.softmax(x, -1), (rows,)), n
    yield "reduction", (lambda x: x.sum(-1), (rows,)), n
    yield "scan", (lambda x: x.cumsum(-1), (rows,)), n
    yield "sort", (lambda x: x.sort(-1)[0], (rows,)), n * math.log2(n)
    yield "random", (torch.rand_like, (rows,)), n
    yield "shape", (lambda x, y: torch.cat([x, y], -1), (rows, rows.clone())), 2 * n
    at = torch.randint(len(rows), (len(rows),)).to(on.device)
    yield "indexing", (lambda x, i: x[i], (rows, at)), n
    x, y = on.rand(wide, 128, 64), on.rand(wide, 64, 128)
    yield "aten.bmm", (torch.bmm, (x, y)), 2.0 * wide * 128 * 64 * 128
    image = on.rand(on.images, 64, 56, 56)
    yield "aten.max_pool2d_with_indices", (lambda x: torch.max_pool2d(x, 3, 2, 1), (image,)), image.numel() / 4 * 9


@dataclass(frozen=True)
class _Layer:
    """Convolutions of one kind: as many channels come out as go in, each of ``shared`` of them; ``thin`` ones are
    little arithmetic for their traffic.  With ``back``, their gradients.
    """

    kind: str
    channels: int
    shared: int
    side: int
    window: int
    thin: bool = False
    back: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind} backward" if self.back else self.kind

    def title(self, count: int) -> str:
        return f"{count} of {'a thin ' if self.thin else ''}{self.name}"

    def image(self, on: Probed) -> float:
        return float(on.images * self.channels * self.side**2)

    def flops(self, on: Probed) -> float:
        return 2.0 * self.image(on) * self.shared * self.window**2 * (2 if self.back else 1)

    def moved(self, on: Probed) -> float:
        return 4.0 * self.image(on) * (3 if self.back else 2)

    def probe(self, on: Probed, count: int) -> Probe:
        shape = on.images, self.channels, self.side, self.side
        kernels = [on.rand(self.channels, self.shared, self.window, self.window) for _ in range(count)]
        padding, groups = self.window // 2, self.channels // self.shared

        def forward(x: torch.Tensor, *kernels: torch.Tensor) -> torch.Tensor:
            for w in kernels:
                x = torch.conv2d(x, w, padding=padding, groups=groups)
            return x

        def backward(g: torch.Tensor, x: torch.Tensor, *kernels: torch.Tensor) -> list[torch.Tensor]:
            weights = []
            for w in kernels:
                g, gw, _ = torch.ops.aten.convolution_backward(
                    g, x, w, None, [1, 1], [padding] * 2, [1, 1], False, [0, 0], groups, [True, True, False]
                )
                weights.append(gw)
            return [g, *weights]

        image = on.rand(*shape)
        return (backward, (image, image.clone(), *kernels)) if self.back else (forward, (image, *kernels))


def _layers() -> Iterator[_Layer]:
    for back in (False, True):
        yield _Layer("convolution", 128, 128, 28, 3, back=back)
        yield _Layer("convolution", 16, 16, 112, 3, thin=True, back=back)
        yield _Layer("pointwise convolution", 256, 256, 28, 1, back=back)
        yield _Layer("pointwise convolution", 32, 32, 112, 1, thin=True, back=back)
        yield _Layer("depthwise convolution", 96, 1, 28, 7, back=back)
        yield _Layer("depthwise convolution", 96, 1, 56, 3, thin=True, back=back)
    yield _Layer("grouped convolution", 64, 8, 28, 3)


def _each(layer: _Layer, times: Times) -> float | None:
    """The seconds of one more in a chain; None where the backend does not take it."""
    one, several = (times.get(layer.title(count)) for count in (1, ROW))
    return None if one is None or several is None else max((several - one) / (ROW - 1), 0.0)


def _convolutions(times: Times, on: Probed, cost: Cost) -> Cost:
    """The sheet with what convolutions take of arithmetic and of traffic (see ``Cost.passes``), and with its border."""
    weights, passes, borders = dict(cost.weights), dict(cost.passes), list[float]()
    layers = {(layer.name, layer.thin): layer for layer in _layers()}
    for (name, thin), layer in layers.items():
        each, small = _each(layer, times), layers.get((name, True))
        if each is None:
            continue
        if thin and not layer.back:
            besides = times[layer.title(1)] - cost.launch - each
            borders.append(besides * cost.bandwidth / layer.moved(on))
        if thin:
            continue
        rate = cost.flops[torch.float32]
        wide = layer.flops(on) / rate, layer.moved(on) / cost.bandwidth, each - cost.call
        other = (
            None
            if small is None or (took := _each(small, times)) is None
            else (small.flops(on) / rate, small.moved(on) / cost.bandwidth, took - cost.call)
        )
        weights[name], again = _split(wide, other)
        if again > 0:
            passes[name] = 1 + again
    border = statistics.median(borders) if borders else 0.0
    return replace(cost, weights=weights, passes=passes, border=border if border >= NOISE_FLOOR else 0.0)


def _split(wide: tuple[float, float, float], thin: tuple[float, float, float] | None) -> tuple[float, float]:
    """The weight w and the passes besides, p, with which ``max(w arithmetic, traffic) + p traffic`` are the seconds of
    both.  If there is no such pair, a weight between those of each alone.
    """
    a, t, each = wide
    if thin is None:
        return max(each / a, LEAST), 0.0
    b, u, other = thin
    p = (other - b * each / a) / (u - b * t / a)  # both do more arithmetic than traffic
    if (each - p * t) * b / a < u:  # the thin one does not
        p = other / u - 1
    w = (each - p * t) / a
    return (w, p) if p > 0 and w >= LEAST else (max(math.sqrt(max(each / a * other / b, 0.0)), LEAST), 0.0)


def _weights(times: Times, on: Probed, cost: Cost) -> dict[str, float]:
    """By kind of operator: its time beside what the rates say of its work."""
    results = {}
    for kind, _, work in _kinds(on):
        if kind in times:
            rate = cost.flops[torch.float32] if kind == "aten.bmm" else cost.scalars
            results[kind] = max((times[kind] - cost.launch - cost.call) * rate / work, LEAST)
    return results


def _sheet(own: Cost | None, times: Times, on: Probed) -> Cost:
    call = max((times["many calls"] - times["a few calls"]) / MANY, 0.0)
    launch = max(times["a few calls"] - FEW * call, 0.0)
    one, chain = times["an addition"] - launch, times["additions"] - launch
    fuses = chain < one * CHAIN / 2
    mixed = times["a mixture"] - launch - (0 if fuses else CHAIN * call)
    flops = {d: _rate(2.0 * on.product**3, _product(times, d, launch) - call) for d in DTYPES if str(d) in times}
    fields: dict[str, Any] = {} if own is None else {"link": own.link, "memory": own.memory, "seconds": own.seconds}
    result = Cost(
        flops=flops,
        scalars=_rate(CHAIN * on.small, mixed),
        bandwidth=_rate(12 * on.large, one),
        launch=launch,
        call=call,
        fuses=fuses,
        **fields,
    )
    result = replace(result, weights=_weights(times, on, result), copies=_copies(times, on, result))
    return _convolutions(times, on, result)


def _product(times: Times, dtype: torch.dtype, launch: float) -> float:
    """The seconds of one more product in a chain; those of one in the long chain, if that is no longer."""
    few, many = times[str(dtype)], times.get(f"more {dtype}", 2 * times[str(dtype)] - launch)
    return (many - few) / PAIR if many > few else (many - launch) / (2 * PAIR)


def _multiplied(n: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(n):
            x = x @ y
        return x

    return chain


def _layers_of(x: torch.Tensor, *kernels: torch.Tensor) -> torch.Tensor:
    for w in kernels:
        x = torch.relu(x @ w)
    return x


def _copies(times: Times, on: Probed, cost: Cost) -> float:
    """How often a tensor is copied on its way into a part, and out of it: of layers by themselves, what they take more
    than together.  It is copied on both ways alike, and is as large as what it is made into.
    """
    if "a layer" not in times or "layers" not in times:
        return 0.0
    size, cut = 4.0 * 8 * (on.product // 2) ** 2, ROW - 1
    result = ((ROW * times["a layer"] - times["layers"]) / cut - cost.launch) * cost.bandwidth / size / 2
    return result if result >= NOISE_FLOOR and not cost.fuses else 0.0


def _products(n: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(n):
            x = x @ x
        return x

    return chain


def _added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for _ in range(CHAIN):
        x = x + y
    return x


def _mixed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As many calls as ``CHAIN`` says, of what models are made of."""
    return torch.sigmoid(torch.relu(x * y + x).exp() - y) * (x / y)


def _built(backend: Backend, fn: Callable[..., Any], args: Sequence[torch.Tensor], optional: bool) -> Built | None:
    try:
        return part(backend, fn, args)
    except Exception:  # a foreign compiler raises what it likes
        if optional:
            return None
        raise


def _fastest(parts: Mapping[str, Part], device: str) -> dict[str, float]:
    """The fastest run of each part, all of which have run once.  They take turns, so that a busy machine slows all
    alike.
    """
    end = time.perf_counter() + PATIENCE * len(parts)
    best = {name: _timed(part, 1, device) for name, part in parts.items()}
    batch = {name: max(1, int(SLICE / max(seconds, 1e-7))) for name, seconds in best.items()}
    while time.perf_counter() < end:
        for name, part in parts.items():
            best[name] = min(best[name], _timed(part, batch[name], device))
    return best


def _timed(part: Part, batch: int, device: str) -> float:
    run, args = part
    start = now(device)
    for _ in range(batch):
        run(*args)
    finish(device)
    return (now(device) - start) / batch


def _rate(amount: float, seconds: float) -> float:
    return amount / max(seconds, 1e-9)


def part(backend: Backend, fn: Callable[..., Any], args: Sequence[torch.Tensor]) -> Built:
    """The graph of ``fn``, which must be one part, what the backend compiled of it, and what that is called with."""
    calls: list[Built] = []

    def watched(gm: fx.GraphModule, ctx: CompileContext) -> Callable[..., Any]:
        run = keel.testing.compile_part(backend, gm, ctx)

        def call(*args: Any) -> Any:
            calls.append((gm, run, args))
            return run(*args)

        return call

    alone = replace(backend, compile=watched, last_resort=False)
    torch.compiler.reset()
    with torch.no_grad():
        keel.compile(fn, backends=[alone], strict=True, dynamic=False, fullgraph=True)(*args)
    return calls[0]


def _processor(device: str) -> str:
    if device != "cpu":
        name = getattr(torch.get_device_module(device), "get_device_name", None)
        return device if name is None else str(name())
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def _rounded(value: Any) -> Any:
    """Three digits, which is more than holds from one day to the next."""
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return float(f"{value:.3g}") if isinstance(value, float) else value
