"""The function of a launch list, apart from what it computes, which the backends' tests look at."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import keel
import keel_interp
from keel import KeelError
from keel.loop_level import compile_part
from keel.loops.parser import parse
from keel.runtime.launch_printer import fit, in_own_memory, python_function
from keel.runtime.launch_program import CallLibrary, LaunchKernel, LaunchProgram, LayOut, Return
from keel.runtime.launch_verify import verify_program
from keel.runtime.python_source import CHUNK
from keel.schedule.tensor_graph import Slot
from keel.types import SymType, TensorType


def longest(count: int) -> int:
    """The stack size of the launch list of ``count`` kernels, which gives what eager gives."""
    sizes: list[int] = []

    def compile(gm):
        run = compile_part(keel_interp.target, gm)
        sizes.append(run.boxed.__code__.co_stacksize)
        return run

    def fn(x):
        for _ in range(count):
            x = x.cos() @ x
        return x

    backend = keel.Backend(name="probe", device="cpu", supports=keel_interp.backend.supports, compile=compile)
    x = torch.randn(2, 2) / 2
    torch.testing.assert_close(keel.compile(fn, backends=[backend], strict=True)(x), fn(x))
    return max(sizes)


@pytest.mark.slow
def test_a_long_list_has_a_chunk_of_the_frame_stack_for_itself() -> None:
    assert longest(140) >= CHUNK


def test_a_short_list_takes_no_more_than_it_needs() -> None:
    assert longest(2) < CHUNK // 4


def test_a_result_is_laid_out_as_promised_where_elements_share_a_place_too() -> None:
    x = torch.arange(4.0)
    for promised in (
        torch.rand(1).expand(4),
        torch.rand(2, 1).t().expand(4, 2),
        torch.rand(4, 6)[:, ::2],
        torch.rand(3, 4).t(),
    ):
        given = x[:1].expand(4).clone() if promised.dim() == 1 else promised.contiguous()
        found = fit(given, tuple(promised.shape), promised.stride())
        assert found is not None and found.stride() == promised.stride() and torch.equal(found, given)


def test_a_result_of_another_shape_than_promised_is_refused() -> None:
    with pytest.raises(KeelError, match=r"A library returned a tensor of shape \[3, 1\], not \[4, 1\]."):
        fit(torch.ones(3, 1), (4, 1), (1, 1))


def test_what_a_library_returns_is_not_used_before_its_shape_is_checked() -> None:
    type, rows = TensorType.dense(torch.float32, (4,), torch.device("cpu")), SymType(4)
    make = CallLibrary(torch.ops.aten.ones.default, ([rows],), {}, (0,))
    use = CallLibrary(torch.ops.aten.neg.default, (Slot(0),), {}, (1,))
    ends = LayOut(1), Return((1,))
    verify_program(LaunchProgram((type, type), (), (make, LayOut(0), use, *ends)))
    for steps in ((make, use, *ends), (make, use, LayOut(0), *ends), (make, Return((0,)))):
        with pytest.raises(KeelError, match="which a library returned, before its shape is checked"):
            verify_program(LaunchProgram((type, type), (), steps))


def test_what_counts_from_where_its_storage_starts_finds_it_there() -> None:
    """An offset of ``as_strided`` is one in the storage, which an arena would be for all that lies in it."""

    def fn(x, y):
        first, second = x @ y, y @ x
        return first.as_strided((3, 2), (4, 2), 1) @ second.as_strided((2, 3), (1, 6), 2) + first.as_strided(
            (3, 1), (1, 1), 0
        )

    x, y = torch.randn(4, 6), torch.randn(6, 4)
    for backends in (["interp"], ["cpp", "eager"]):
        torch.testing.assert_close(keel.compile(fn, backends=backends)(x, y), fn(x, y))


def test_a_view_that_counts_from_the_start_of_a_view_finds_it_there() -> None:
    def fn(x, y):
        first, second = (x @ y).view(16).as_strided((4, 2), (4, 1), 2), (y @ x).t()[1:]
        return first.as_strided((3, 2), (4, 2), 1) @ second.as_strided((2, 3), (1, 6), 2)

    x, y = torch.randn(4, 6), torch.randn(6, 4)
    torch.testing.assert_close(keel.compile(fn, backends=["interp"])(x, y), fn(x, y))


def test_what_a_library_returns_is_overwritten_only_where_it_is_none_of_its_arguments() -> None:
    type = TensorType.dense(torch.float32, (4,))
    kernel = parse(
        "kernel k(a: inout f32[4]) -> ():\n  parallel i < 4:\n    %0 = load a[i]\n    %1 = neg %0\n    store a[i] %1\n"
    )
    call = CallLibrary(lambda x, y: y, (Slot(0), Slot(1)), {}, (2,))
    ends = LaunchKernel(kernel, (2,)), Return((2,))
    program = LaunchProgram((type, type, type), (0, 1), (call, LayOut(2, (0, 1)), *ends))
    verify_program(program)
    run, x, y = python_function(program, {kernel: keel_interp.launcher(str(kernel))}), torch.ones(4), torch.ones(4)
    assert torch.equal(run(x, y)[0], -torch.ones(4)) and torch.equal(y, torch.ones(4))
    with pytest.raises(KeelError, match="may be an argument or another result of a library"):
        verify_program(replace(program, steps=(call, LayOut(2, (0,)), *ends)))


def test_a_copy_lies_as_what_it_is_copied_from() -> None:
    x = torch.randn(4, 6)[:, ::2]
    copy = in_own_memory(x, torch.ones(2), x)
    assert copy.stride() == x.stride() and torch.equal(copy, x) and copy.data_ptr() != x.data_ptr()
    assert in_own_memory(x, torch.ones(2)) is x
