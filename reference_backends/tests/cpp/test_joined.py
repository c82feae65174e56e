"""Joined tensors are read from one address for each row, whatever they are joined from and along what."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import keel
from keel_cpp import target
from keel_cpp.joined import joined
from keel_cpp.statements import Picked

Program = Callable[..., tuple[Tensor, ...]]
NAN, INF = float("nan"), float("inf")


def rows(*xs: Tensor) -> tuple[Tensor, ...]:
    return (torch.cat(xs, 1).relu(),)


def normalized(*xs: Tensor) -> tuple[Tensor, ...]:
    whole = torch.cat(xs, 1)
    mean = whole.mean((0, 2, 3), keepdim=True)
    centered = whole - mean
    return (whole, mean, (centered * centered).sum((0, 2, 3)), centered.relu().sum(3))


def outermost(*xs: Tensor) -> tuple[Tensor, ...]:
    return (torch.cat([x.transpose(0, 1) for x in (*xs, xs[0])], 0) * 2,)


def innermost(*xs: Tensor) -> tuple[Tensor, ...]:
    return (torch.cat([x.transpose(1, 3) for x in xs], 3) + 1,)


def stacked(*xs: Tensor) -> tuple[Tensor, ...]:
    return (torch.stack([x[:, 0] for x in xs], 1).neg(), torch.stack([x[:, 0] for x in xs], 0).sum(0))


def nested(*xs: Tensor) -> tuple[Tensor, ...]:
    return (torch.cat([torch.cat(xs, 1), *xs], 1).abs(),)


def of_computed(*xs: Tensor) -> tuple[Tensor, ...]:
    return (torch.cat([xs[0], xs[1] * 2, *xs[2:]], 1).relu(),)


def padded(*xs: Tensor) -> tuple[Tensor, ...]:
    return (torch.nn.functional.pad(torch.cat(xs, 1), (1, 2, 0, 1)) - 1,)


def pooled(*xs: Tensor) -> tuple[Tensor, ...]:
    return (torch.cat(xs, 1).sum(3), torch.cat(xs, 1).sum((2, 3)))


def of_layouts(*xs: Tensor) -> tuple[Tensor, ...]:
    other = xs[0].to(memory_format=torch.channels_last)
    return (torch.cat([other, *xs[1:]], 1) + 1, torch.cat([xs[0].flip(0), *xs], 1) + 1)


def gathered(*xs: Tensor) -> tuple[Tensor, ...]:
    return (torch.cat(xs, 1)[torch.arange(xs[0].shape[0]).flip(0)] + 1,)


def written(*xs: Tensor) -> tuple[Tensor, ...]:
    whole = torch.cat(xs, 1)
    whole[:, 1:3] = 7
    return (whole + 1,)


PROGRAMS: Sequence[Program] = (
    rows,
    normalized,
    outermost,
    innermost,
    stacked,
    nested,
    of_computed,
    padded,
    pooled,
    of_layouts,
    gathered,
    written,
)


def tensors(
    channels: Sequence[int], *, batch: int = 3, side: int = 5, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    made = []
    for n, c in enumerate(channels):
        generator = torch.Generator().manual_seed(n)
        x = torch.randint(-99, 99, (batch, c, side, side), generator=generator).to(dtype)
        if dtype.is_floating_point and x.numel() > 2:
            x.view(-1)[1], x.view(-1)[2] = NAN, INF
        made.append(x)
    return made


def same(got: Sequence[Tensor], want: Sequence[Tensor]) -> None:
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("channels", [(3, 1), (4, 0, 2), (1,) * 9], ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_those_of_eager(program: Program, channels: Sequence[int]) -> None:
    if program is stacked and 0 in channels:
        channels = tuple(c or 1 for c in channels)
    compiled = keel.compile(program, backends=["cpp", "eager"], dynamic=False)
    for side in (4, 17):
        xs = tensors(channels, side=side)
        same(compiled(*xs), program(*xs))


@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_those_of_eager_where_no_size_is_known(program: Program) -> None:
    compiled = keel.compile(program, backends=["cpp", "eager"], dynamic=True)
    for channels, batch, side in (((3, 2, 4), 3, 5), ((5, 7, 2), 2, 18), ((2, 40, 3), 4, 2)):
        xs = tensors(channels, batch=batch, side=side)
        same(compiled(*xs), program(*xs))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8])
def test_results_are_those_of_eager_in_every_dtype(dtype: torch.dtype) -> None:
    xs = tensors((3, 1, 4), side=17, dtype=dtype)
    for program in (outermost, innermost, padded):
        same(keel.compile(program, backends=["cpp", "eager"])(*xs), program(*xs))


def test_flags_are_joined() -> None:
    def flags(*xs: Tensor) -> tuple[Tensor, ...]:
        return (~torch.cat(xs, 1),)

    xs = [x > 0 for x in tensors((3, 1, 4), side=17)]
    same(keel.compile(flags, backends=["cpp"])(*xs), flags(*xs))


# -- the text ---------------------------------------------------------------------------------------------------------


def kernels_of(program: Program, channels: Sequence[int], *, dynamic: bool = False) -> list[keel.loops.Kernel]:
    seen: list[keel.loops.Kernel] = []

    def kept(kernel: keel.loops.Kernel) -> str:
        seen.append(kernel)
        return target.render(kernel)

    own = keel.loop_backend(replace(target, render=kept))
    torch.compiler.reset()
    keel.compile(program, backends=[own, "eager"], dynamic=dynamic)(*tensors(channels, side=17))
    return seen


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", [rows, normalized, nested, pooled])
def test_a_row_takes_one_load_however_many_pieces_there_are(program: Program, dynamic: bool) -> None:
    for kernel in kernels_of(program, (3, 2, 4, 5), dynamic=dynamic):
        assert not re.search(r"\? in\d+\[", target.render(kernel)), target.render(kernel)


def test_several_loops_over_a_row_share_the_choice() -> None:
    (kernel, *_) = kernels_of(normalized, (3, 2, 4))
    text = target.render(kernel)
    assert text.count("? i64") == 0 and len(re.findall(r"= i64\(in\d+ \+", text)) == 3, text
    picked = [s for s in keel.loops.walk(joined(kernel).body) if isinstance(s, Picked)]
    assert len(picked) > 1 and len({p.address for p in picked}) == 1


def test_where_the_pieces_lie_along_the_lanes_nothing_changes() -> None:
    def last(*xs: Tensor) -> tuple[Tensor, ...]:
        return (torch.cat([x.flatten(1) for x in xs], 1) + 1,)

    for kernel in kernels_of(last, (3, 2, 4)):
        assert joined(kernel) is kernel or joined(kernel) == kernel


def test_a_load_under_another_condition_than_its_choice_stays() -> None:
    text = """
kernel odd(in0: f32[64], in1: f32[64]) -> (out0: f32[64]):
  %0 = const 2 : i64
  %1 = const 1 : i64
  parallel i0 < 4, i1 < 16:
    %2 = position i0
    %3 = lt %2 %0
    %4 = load in0[16*i0 + i1] if %3
    %5 = ge %2 %1
    %6 = and %5 %3
    %7 = load in1[16*i0 + i1] if %6
    %8 = where %3 %4 %7 : f32
    store out0[16*i0 + i1] %8
"""
    kernel = keel.loops.parse(text)
    assert joined(kernel) == kernel
