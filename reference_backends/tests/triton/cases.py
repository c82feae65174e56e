"""What each kernel of ``kernels`` must compute, said with PyTorch, and how to run one and compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from keel import Launcher, Source
from keel.loops import Kernel, evaluate
from keel_triton.build import build
from keel_triton.render import render

from .. import kernels
from ..kernels import Values, first_best

INF, NAN = float("inf"), float("nan")


@dataclass(frozen=True)
class Case:
    """A kernel at sizes that are known (``static``) or are not; ``special``: NaN and infinities among the inputs."""

    kernel: str
    sizes: tuple[tuple[str, int], ...]
    static: bool
    special: bool = False

    def __str__(self) -> str:
        sizes = "x".join(str(v) for _, v in self.sizes)
        return f"{self.kernel}-{sizes}-{'static' if self.static else 'symbolic'}{'-special' if self.special else ''}"


def total(v: Values, N: int, M: int) -> Values:
    x = v["in0"]
    return {"out0": x.sum(), "out1": x / x.sum(), "out2": x.max()}


def cummax(v: Values, N: int, M: int) -> Values:
    x = v["in0"].view(N, M)
    at = torch.stack([first_best(x[: k + 1]) for k in range(N)])
    return {"out0": x.gather(0, at), "out1": at}


def roll(v: Values, N: int, M: int) -> Values:
    x = v["in0"].view(N, M)
    back = torch.zeros_like(x)
    back[:, 3:] = x[:, : max(M - 3, 0)]
    return {"out0": x.roll(3, 1), "out1": back}


def permuted(v: Values, N: int, M: int, K: int) -> Values:
    x = v["in0"]
    return {"out0": x.view(N, M, K) - x.view(K, M, N).permute(2, 1, 0)}


def small_ints(v: Values, N: int, M: int) -> Values:
    x, y = v["in0"].view(N, M), v["in1"].view(N, M)
    bits = x.new_zeros(N)
    for k in range(M):
        bits = bits ^ x[:, k]
    return {"out0": x.sum(1, dtype=torch.int8), "out1": y.amax(1), "out2": x.amin(1), "out3": bits}


def bools(v: Values, N: int, M: int) -> Values:
    x, y = v["in0"].view(N, M), v["in1"].view(N, M)
    return {"out0": x.any(1), "out1": y.all(1), "out2": ~x ^ y}


def rows_in_rows(v: Values, N: int, M: int, K: int) -> Values:
    x = v["in0"].view(N, M, K) * v["in1"][:, None, None]
    return {"out0": x, "out1": v["in1"] * 2, "out2": x.sum(2)}


def images(v: Values, N: int, M: int, K: int) -> Values:
    x = v["in0"].view(N, M, K)
    mean = x.mean((0, 2))
    return {"out0": mean, "out1": x - mean[:, None]}


REFERENCES: Mapping[str, Callable[..., Values]] = {
    **kernels.REFERENCES,
    "broadcast": lambda v, N, M: {"out0": (v["in0"].view(N, M) + v["in1"] * v["in2"][:, None]) * 0.5},
    "layer_norm_bf16": lambda v, N, M: {"out0": F.layer_norm(v["in0"].view(N, M).double(), (M,))},
    "total": total,
    "cumsum": lambda v, N, M: {"out0": v["in0"].view(N, M).cumsum(1)},
    "cummax": cummax,
    "roll": roll,
    "gather": lambda v, N, M, K: {"out0": v["in0"].view(N, M)[v["in1"]]},
    "scatter_add": lambda v, N, M, K: {"out0": v["in0"].view(N, M).index_add(0, v["in1"], v["in2"].view(K, M))},
    "side_by_side": lambda v, N, M, K: {
        "out0": v["in0"].view(N, M).amin(1),
        "out1": -v["in1"],
        "out2": v["in1"].prod(),
    },
    "in_turn": lambda v, N, M: {"out0": v["in0"].view(N, M).abs().T, "out1": v["in0"].view(N, M).abs().T * 2},
    "row_twice": lambda v, N, M: {"out0": v["in0"] * 2, "out1": v["in0"].view(N, M).flip(1) * 2},
    "in_place": lambda v, N, M: {"in0": v["in0"] * v["in0"]},
    "permuted": permuted,
    "transposed": lambda v, N, M, K: {"out0": (v["in0"].view(N, M, K) + v["in1"]).transpose(1, 2)},
    "out_of_order": lambda v, N, M, K: {"out0": -v["in0"]},
    "rows_in_rows": rows_in_rows,
    "images": images,
    "two_widths": lambda v, N, M, K: {
        "out0": v["in0"][:M].sum() * torch.arange(N, device=v["in0"].device),
        "out1": v["in0"][:K].sum() * torch.arange(N, device=v["in0"].device),
    },
    "strips": lambda v, N, M, K: {"out0": (v["in0"].view(N, K, M) * v["in1"].view(N, K, 1)).sum(1)},
    "fills": lambda v, N: {"out0": torch.full((N,), 3.5), "out1": torch.arange(N) * 2 + N, "out2": v["out2"] + 3.5 * N},
    "bools": bools,
    "small_ints": small_ints,
    "signed_zeros": lambda v, N: {"out0": v["in0"] * -0.0, "out1": -v["in0"], "out2": v["in0"] * NAN},
    "halves": lambda v, N: {
        "out0": v["in0"].bfloat16(),
        "out1": v["in1"].half(),
        "out2": v["in2"].bfloat16(),
        "out3": v["in1"].int(),
    },
}

# Triton's interpreter walks scans and folds of pairs element by element, and makes no mask of a comparison of scalars.
SMALL = {
    "cummax": ((1, 1), (33, 3), (7, 2)),
    "masked": ((2, 1), (3, 130), (7, 33)),
    "two_widths": ((1, 1, 2), (3, 40, 33), (2, 33, 60)),
    "strips": ((1, 64, 5), (3, 130, 20), (2, 100, 70)),
    "transposed": ((2, 128, 32), (1, 35, 33), (2, 64, 17)),
}
SPECIAL = (
    "softmax",
    "argmax",
    "total",
    "cummax",
    "in_place",
    "signed_zeros",
    "column_sum",
    "side_by_side",
    "broadcast",
)


def cases() -> Iterator[Case]:
    """Every kernel at a few sizes, static and symbolic; the odd ones matter more than the large ones."""
    for name, reference in REFERENCES.items():
        names = reference.__code__.co_varnames[1 : reference.__code__.co_argcount]
        least, most, other = SMALL.get(name) or _SIZES[len(names)]
        yield Case(name, tuple(zip(names, least, strict=True)), True)
        yield Case(name, tuple(zip(names, most, strict=True)), True)
        yield Case(name, tuple(zip(names, other, strict=True)), False)
        if name in SPECIAL:
            yield Case(name, tuple(zip(names, (7, 33, 5), strict=False)), True, special=True)


_SIZES = {1: ((1,), (130,), (33,)), 2: ((1, 1), (3, 130), (7, 33)), 3: ((1, 1, 1), (5, 7, 33), (3, 33, 7))}


def wide_cases() -> Iterator[Case]:
    """Sizes that only a device is fast enough for."""
    for name, reference in REFERENCES.items():
        names = reference.__code__.co_varnames[1 : reference.__code__.co_argcount]
        for values, static in product(_WIDE[len(names)], (True, False)):
            yield Case(name, tuple(zip(names, values, strict=True)), static)


_WIDE = {
    1: ((100_003,),),
    2: ((1, 1), (1000, 1024), (37, 20_011), (5_003, 5)),
    3: ((1, 1, 1), (64, 100, 70), (3, 9, 5_001)),
}


def tensors(kernel: Kernel, case: Case, device: str) -> dict[str, Tensor]:
    """Inputs, and outputs full of what must not stay there.  Floats are multiples of 1/8: sums of them are exact."""
    sizes = dict(case.sizes)
    made: dict[str, Tensor] = {}
    source = torch.Generator().manual_seed(1)
    for b in kernel.buffers:
        n, dtype = evaluate(b.size, sizes), b.dtype
        if b.role == "out":
            x = torch.full((n,), 77).to(dtype)
        elif dtype == torch.bool:
            x = torch.rand(n, generator=source) < (0.03 if b.name == "in0" else 0.97)
        elif dtype == torch.int64:
            x = torch.randint(0, sizes["N"], (n,), generator=source)
        elif not dtype.is_floating_point:
            x = torch.randint(0 if not dtype.is_signed else -99, 100, (n,), generator=source).to(dtype)
        else:
            x = (torch.randint(-32, 33, (n,), generator=source) / 8).to(dtype)
            if case.kernel == "side_by_side" and b.name == "in1":
                x = x.sign() + (x == 0)  # their product overflows in no order
            if case.special:
                odd = torch.tensor([NAN, INF, -INF, -0.0, 0.0])
                x[::17] = odd[torch.randint(0, 5, (n,), generator=source)][::17].to(dtype)
        made[b.name] = x.to(device)
    return made


def check(case: Case, kernel: Kernel, device: str, build: Callable[[list[Source]], Sequence[Launcher]] = build) -> None:
    """Builds ``kernel``, runs it on the tensors of ``case`` and compares; AssertionError with the first difference."""
    given = tensors(kernel, case, device)
    sizes = dict(case.sizes)
    wanted = REFERENCES[case.kernel]({k: v.clone() for k, v in given.items()}, **sizes)
    untouched = {k: v.clone() for k, v in given.items() if k not in wanted}
    (launch,) = build([Source(kernel, render(kernel))])
    launch(*given.values(), *(sizes[s] for s in kernel.symbols))
    for name, want in wanted.items():
        compare(given[name], want.reshape(-1).to(given[name]), f"{case}: {name}")
    for name, before in untouched.items():
        assert torch.equal(given[name].nan_to_num(), before.nan_to_num()), f"{case}: {name} was written"


def compare(found: Tensor, want: Tensor, what: str) -> None:
    coarse = {torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float32: 3e-6, torch.float64: 1e-14}.get(want.dtype, 0)
    torch.testing.assert_close(found, want, rtol=coarse, atol=coarse, equal_nan=True, msg=lambda m: f"{what}\n{m}")
    if want.dtype.is_floating_point and what.startswith("signed_zeros"):
        assert torch.equal(found.signbit() & ~found.isnan(), want.signbit() & ~want.isnan()), f"{what}: a zero's sign"
