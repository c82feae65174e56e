"""Promised strides are those that eager gives: where PyTorch's fake kernels promise others, the fault is listed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import requires
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_map_only

from keel.torch_adapter import Captured, capture, captured_calls
from keel.torch_adapter.meta_bugs.record import ALL
from keel.torch_adapter.meta_bugs.table import META_BUGS, METAS, bug_of, fix_strides

aten = torch.ops.aten
HERE = ".".join(torch.__version__.split(".")[:2])


def transforms(x: torch.Tensor, *rest: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    for y in (x, x.permute(1, 2, 0).contiguous().permute(2, 0, 1), x[:, ::2]):
        for n in (1, 2, 3):
            for dims in permutations(range(3), n):
                yield from ((y, list(dims), *more) for more in rest)


X, C = torch.randn(3, 4, 6), torch.randn(3, 4, 6, dtype=torch.complex64)
SWAPPED = torch.rand(6, 4).t()
CALLS: dict[Any, list[tuple[Any, ...]]] = {
    aten._fft_c2c.default: list(transforms(C, (0, True), (1, False))),
    aten._fft_r2c.default: list(transforms(X, (0, True), (2, False))),
    aten._fft_c2r.default: [(y, dims, 0, 2 * (y.shape[dims[-1]] - 1)) for y, dims in transforms(C, ())],
    aten.randint_like.Tensor: [(x, torch.tensor(9)) for x in (SWAPPED, X, C.real.mT)],
    aten.slice_scatter.default: [
        (SWAPPED, torch.zeros(4, 2), 1, 1, 3),
        (X[:, ::2, ::3], torch.zeros(3, 2, 1), 2, 0, 1),
        (torch.rand(4).expand(3, 4), torch.zeros(3, 2), 1, 0, 2),
    ],
    aten._standard_gamma.default: [(SWAPPED,), (X,)],
    aten.poisson.default: [(SWAPPED,), (X.abs(),)],
    aten.uniform.default: [(SWAPPED,), (X[:, ::2],), (X[:, :1].expand(X.shape),)],
    aten.native_dropout.default: [
        (x, 0.5, train) for x in (SWAPPED, X[:, ::2], X[:, :1].expand(X.shape)) for train in (True, False)
    ],
    aten.normal.float_Tensor: [(1.0, SWAPPED), (1.0, X.abs())],
    aten.normal.Tensor_Tensor: [(SWAPPED, SWAPPED), (X, X.abs()), (X, SWAPPED[0, 0])],
    aten.copysign.Tensor: [(SWAPPED, torch.ones(4, 6)), (torch.ones(4, 6), SWAPPED), (X, X), (X, X[0])],
    aten.div.Tensor_mode: [(SWAPPED, torch.ones(4, 6)), (torch.ones(4, 6), SWAPPED), (X, X[0])],
    torch.ops.prims.device_put.default: [(SWAPPED, torch.device("cpu")), (X[:, ::2], torch.device("cpu"))],
}


def laid(*shape: int) -> list[torch.Tensor]:
    """A tensor of these sizes in each layout."""
    n = len(shape)
    x, last = torch.rand(shape), [0, *range(2, n), 1]
    found = [
        x,
        x.transpose(-1, -2).contiguous().transpose(-1, -2),
        x.permute(last).contiguous().permute([last.index(d) for d in range(n)]),
        torch.rand([2 * k for k in shape])[(slice(None, None, 2),) * n],
        torch.rand([*shape[:-1], 1]).expand(shape),
    ]
    return [x, x.mT.contiguous().mT, x[:, :1].expand(shape), torch.rand(2, *shape)[1]] if n == 2 else found


IMAGES, VOLUMES, ROWS = laid(2, 4, 3, 5), laid(2, 3, 3, 4, 5), laid(3, 4)
PAIRS = [(x, y) for x in ROWS for y in ROWS] + [(IMAGES[2], IMAGES[0]), (IMAGES[0], IMAGES[2])]
X4 = torch.rand(2, 4, 3, 5)
SHARED = [*ROWS, torch.rand(3, 1).expand(3, 4)]
TURNED = torch.rand(4, 3, 2).permute(2, 1, 0)
SPREAD = [(torch.rand(2, 3, 1).expand(2, 3, 4), y) for y in laid(2, 3, 4)]
W4, ZERO, ONE = torch.rand(4), torch.zeros(4), torch.ones(4)
STEP = 0.1, 1e-5
CALLS |= {
    aten.native_layer_norm_backward.default: [
        (g, x, [4], torch.rand(3, 1), torch.rand(3, 1), W4, None, [True, True, False]) for g, x in PAIRS[:16]
    ],
    aten._log_softmax_backward_data.default: [(x, x, 1, torch.float32) for x in IMAGES],
    aten.pow.Scalar: [(b, x) for b in (1, 2) for x in IMAGES],
    **{
        op: [(x, [7]) for x in (*laid(2, 3, 5), torch.rand(1, 3, 2).permute(2, 1, 0))]
        for op in (aten._upsample_nearest_exact1d.default, aten.upsample_nearest1d.default)
    },
    **{
        op: [(x, *y, r, *more) for x, *y in [(a, b, b) for a, b in PAIRS] for r in (0, 1)]
        for op, more in (
            (aten.mse_loss_backward.default, ()),
            (aten.smooth_l1_loss_backward.default, (1.0,)),
            (aten.huber_loss_backward.default, (1.0,)),
        )
    },
    aten.log_sigmoid_forward.default: [(x,) for x in IMAGES],
    aten.angle.default: [(torch.complex(x, x).permute(0, 1, 3, 2),) for x in IMAGES] + [(x,) for x in IMAGES],
    **{op: [(x, dims) for x in IMAGES for dims in ([], [1])] for op in (aten.any.dims, aten.all.dims)},
    **{
        op: [(x, w, None, *more) for x in (*IMAGES, *laid(2, 4, 5), *laid(2, 4, 3, 2, 5)) for w in (W4, None)]
        for op, more in (
            (aten._native_batch_norm_legit_functional.default, (ZERO, ONE, True, *STEP)),
            (aten._native_batch_norm_legit.no_stats, (True, *STEP)),
            (aten._native_batch_norm_legit_no_training.default, (ZERO, ONE, *STEP)),
        )
    },
    **{
        op: [(x, W4, W4, ZERO, ONE, *STEP) for x in IMAGES]
        for op in (aten._batch_norm_with_update_functional.default, aten._batch_norm_no_update.default)
    },
    **{
        op: [
            (g, x, W4, ZERO, ONE, ZERO, ONE, train, 1e-5, [True, True, True], *more)
            for g in IMAGES[:3]
            for x in IMAGES
            for train in (True, False)
        ]
        for op, more in (
            (aten.native_batch_norm_backward.default, ()),
            (aten.batch_norm_backward.default, (torch.empty(0, dtype=torch.uint8),)),
        )
    },
    **{
        op: [(torch.rand([2, 4, *(n + 2 for n in x.shape[2:])]), x, [1, 1] * (x.dim() - 2)) for x in of]
        for op, of in (
            (aten.reflection_pad2d_backward.default, IMAGES),
            (aten.replication_pad2d_backward.default, IMAGES),
        )
    },
    **{
        op: [(torch.rand([2, 3, *(n + 2 for n in x.shape[2:])]), x, [1] * 6) for x in VOLUMES]
        for op in (aten.reflection_pad3d_backward.default, aten.replication_pad3d_backward.default)
    },
    **{
        op: [(x, [1] * 6) for x in (*VOLUMES, *IMAGES)]
        for op in (aten.reflection_pad3d.default, aten.replication_pad3d.default)
    },
    aten.max_unpool2d.default: [
        (x, torch.arange(15).reshape(3, 5).expand(x.shape).contiguous(), [6, 10]) for x in IMAGES
    ],
    aten.native_channel_shuffle.default: [(x, 2) for x in IMAGES[::2]],
    aten.binary_cross_entropy_backward.default: [(g, x, x, None, r) for g, x in PAIRS for r in (0, 1)],
    aten.binary_cross_entropy.default: [(x, y, None, r) for x, y in PAIRS for r in (0, 1)],
    **{
        op: PAIRS + [(x, x[0]) for x in IMAGES]
        for op in (aten.xlogy.Tensor, aten.special_xlog1py.default, aten.floor_divide.default)
    },
    aten.softplus_backward.default: [(g, x, 1, 20) for g, x in PAIRS],
    **{
        op: [(g, x, *more) for g, x in PAIRS]
        for op, more in (
            (aten.hardtanh_backward.default, (-1, 1)),
            (aten.hardsigmoid_backward.default, ()),
            (aten.hardswish_backward.default, ()),
            (aten.logit_backward.default, (0.1,)),
            (aten.leaky_relu_backward.default, (0.1, False)),
        )
    },
    aten.elu_backward.default: [(g, 1, 1, 1, False, x) for g, x in PAIRS],
    aten.native_dropout_backward.default: [(g, x > 0.5, 2.0) for g, x in PAIRS],
    **{
        op: [*PAIRS, *SPREAD]
        for op in (
            aten.heaviside.default,
            aten.logaddexp.default,
            aten.logaddexp2.default,
            aten.logical_and.default,
            aten.logical_or.default,
            aten.logical_xor.default,
        )
    },
    aten.ldexp.Tensor: [
        *PAIRS,
        *SPREAD,
        *((x.half(), y) for x, y in SPREAD),
        *(
            (torch.ones((), dtype=dtype), y.to(exponents))
            for y in laid(2, 3, 4)
            for dtype in (torch.float16, torch.float32, torch.float64, torch.complex64, torch.int32)
            for exponents in (torch.float32, torch.int32)
        ),
    ],
    aten.rrelu_with_noise_backward.default: [
        (g, x, noise, 0.1, upper, train, False)
        for g, x in PAIRS
        for noise in (g.contiguous(), g.mT.contiguous().mT)
        for train in (True, False)
        for upper in (0.1, 0.3)
    ],
    aten.addr.default: [(x, torch.rand(3), torch.rand(4)) for x in (*ROWS, W4)],
    aten.nll_loss2d_forward.default: [
        (X4, y, None, r, -1)
        for r in (0, 1)
        for y in (torch.zeros(2, 3, 5).long(), torch.zeros(5, 3, 2).long().permute(2, 1, 0))
    ],
    **{
        op: [(x, *more) for x in SHARED]
        for op, more in (
            (aten.select_scatter.default, (torch.zeros(4), 0, 1)),
            (aten.diagonal_scatter.default, (torch.zeros(3),)),
        )
    },
    aten.zero.default: [(x,) for x in (*IMAGES, *VOLUMES)],
    aten.channel_shuffle.default: [(x, 2) for x in IMAGES],
    **{
        op: [(x, [1] * 4) for x in (*IMAGES, *laid(2, 3, 5))]
        for op in (aten.reflection_pad2d.default, aten.replication_pad2d.default)
    },
    aten.as_strided_scatter.default: [
        (x, torch.zeros(2), [2], [1])
        for x in (*ROWS, torch.rand(3, 1).expand(3, 3), torch.rand(3).expand(3, 3), torch.rand(3, 1, 2).expand(3, 3, 2))
    ],
    aten._functional_assert_async.msg: [(torch.ones(()), "no", x) for x in ROWS],
    aten._functional_sym_constrain_range.default: [(3, 1, 9, x) for x in ROWS],
    aten._functional_sym_constrain_range_for_size.default: [(3, 1, 9, x) for x in ROWS],
    aten.roll.default: [
        (x, *how)
        for x in IMAGES
        for how in (([1], [2]), ([1, 2], [2, 3]), ([4], [1]), ([3], []), ([0, 1], [1, 2]), ([-1], [-1]))
    ],
    aten._weight_norm_interface.default: [(x, torch.rand(3, 1)) for x in ROWS],
    **(
        {aten._upsample_lanczos2d_aa_backward.default: [(x, [3, 5], [2, 4, 6, 4], False) for x in IMAGES]}
        if hasattr(aten, "_upsample_lanczos2d_aa_backward")
        else {}
    ),
}

LONE = torch.rand(1, 3, 1, 9).permute(0, 3, 1, 2), torch.rand(4, 1, 3, 4).permute(1, 2, 3, 0)
PLACES = torch.tensor([[0, 2], [1, 1], [2, 0]])
TURNS = [
    (torch.ones(2, 1, 4, 1), torch.ones(5, 1, 3, 1).permute(3, 2, 1, 0)),
    (torch.ones(1, 1, 4, 2).permute(3, 1, 2, 0), torch.ones(1, 5, 3, 1).permute(0, 2, 3, 1)),
    (torch.ones(1, 1, 5, 1), torch.ones(1, 1, 7, 8).permute(0, 3, 1, 2)),
    *PAIRS,
    *SPREAD,
]
CALLS |= {
    **dict.fromkeys((aten.add.Tensor, aten.sub.Tensor, aten.rsub.Tensor), TURNS),
    aten.lcm.default: [(x.short(), y.short()) for x, y in TURNS],
    **{
        op: [
            (x, where)
            for x in (*LONE, torch.rand(3, 3).t(), torch.rand(3, 1).expand(3, 3))
            for where in (
                [torch.arange(3)],
                [None, PLACES[:, 0]],
                [PLACES, PLACES.mT.contiguous().mT],
                [PLACES[:, :1], PLACES[0]],
                [None, None, PLACES[0]],
                [PLACES, None, PLACES[:, :1]],
                [None, None, PLACES[0], PLACES],
            )
            if len(where) <= x.dim() and all(i is None or i.max() < n for i, n in zip(where, x.shape, strict=False))
        ]
        for op in (aten.index.Tensor, aten._unsafe_index.Tensor)
    },
}

KWARGS: dict[Any, dict[str, Any]] = {
    aten.div.Tensor_mode: {"rounding_mode": "floor"},
    aten.addr.default: {"beta": 0},
    **{op: {"alpha": 2} for op in (aten.add.Tensor, aten.sub.Tensor, aten.rsub.Tensor)},
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")  # PyTorch 2.15's own ldexp does
@pytest.mark.parametrize("op", CALLS, ids=str)
@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
def test_what_is_promised_is_what_eager_gives(op: Any, symbolic: bool) -> None:
    kwargs = KWARGS.get(op, {})
    for args in CALLS[op][:: 5 if symbolic and len(CALLS[op]) > 10 else 1]:
        mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=not symbolic)
        fakes = faked(mode, args)
        with enable_python_dispatcher(), mode:
            said = METAS[op](*fakes) if op in METAS else promised(op, fakes, kwargs)
            if said is None:
                continue
            said = fix_strides(op, fakes, kwargs, said)
        given = op(*args, **kwargs)
        for k in bug_of(op).results:
            one, other = (v[k] if isinstance(v, tuple | list) else v for v in (said, given))
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            assert steps(one) == steps(other), f"{[steps(a) for a in args if isinstance(a, torch.Tensor)]}, {args[1:]}"


SHOWN = [
    bug
    for bug in META_BUGS
    if bug.kind == "strides" and HERE in bug.torch_versions and bug.device != "cuda" and str(bug.ops[0])[:5] == "aten."
]


def test_a_bug_is_listed_while_a_supported_release_has_it() -> None:
    """A row whose bug is gone in the oldest supported PyTorch, and in all releases since, is deleted."""
    (wanted,) = (found for r in requires("torch-keel") or () if (found := re.match(r"torch\b.*>=(\d+)\.(\d+)", r)))
    oldest = tuple(map(int, wanted.groups()))
    for bug in META_BUGS:
        assert bug.sentence.endswith(".") and set(bug.torch_versions) <= set(ALL), bug.sentence
        assert max(tuple(map(int, v.split("."))) for v in bug.torch_versions) >= oldest, bug.sentence


@pytest.mark.slow
@pytest.mark.parametrize("fault", SHOWN, ids=lambda f: str(f.ops[0]))
def test_a_listed_fault_is_one(fault: Any) -> None:
    for op in fault.ops:
        assert bug_of(op) is fault and fault.sentence.endswith(".")
        if torch.Tag.dynamic_output_shape in op.tags or op in METAS or op in {asked for asked, _ in OTHERS.values()}:
            continue
        kwargs = KWARGS.get(op, {})
        with enable_python_dispatcher(), FakeTensorMode() as mode:
            said = [promised(op, faked(mode, args), kwargs) for args in CALLS[op]]
        assert any(
            s is None or of_results(fault, s) != of_results(fault, op(*args, **kwargs))
            for s, args in zip(said, CALLS[op], strict=True)
        ), op


def faked(mode: FakeTensorMode, args: Sequence[Any]) -> list[Any]:
    return list(tree_map_only(torch.Tensor, mode.from_tensor, args))


def of_results(fault: Any, given: Any) -> list[list[int]]:
    return [steps(given[k] if isinstance(given, tuple | list) else given) for k in fault.results]


@pytest.mark.slow
@pytest.mark.parametrize(
    "op", [aten.unique_dim.default, aten.unique_consecutive.default, aten.unique_dim_consecutive.default], ids=str
)
def test_slices(op: Any) -> None:
    """How many slices are distinct only the run tells; where they lie does not depend on it."""
    for x, dim in ((x.round(), d) for x in laid(2, 3, 4) for d in range(3)):
        flags = {"return_inverse": True, "return_counts": True, "dim": dim}
        captured, _ = captured_calls([(op, (x,), flags)])
        said = next(iter(captured.gm.graph.find_nodes(op="output"))).args[0][0].meta["val"]
        given = op(x, **flags)[0]
        count = {s.node.expr: n for s, n in zip(said.shape, given.shape, strict=True) if not isinstance(s, int)}
        found = [
            int(getattr(s, "node", s).expr.xreplace(count).doit()) if not isinstance(s, int) else s
            for s in said.stride()
        ]
        assert [s for n, s in zip(given.shape, found, strict=True) if n != 1] == steps(given)


def test_an_operator_that_nobody_had_imported() -> None:
    import torch.ao.quantization.fx._decomposed

    op = torch.ops.quantized_decomposed.quantize_per_channel_group.default
    for x in (*laid(4, 6), torch.rand(4, 12)[:, ::2]):
        for size in (2, 3, 6, 100):
            scales = torch.rand(4, 6 // min(size, 6))
            args = (x, scales, torch.zeros_like(scales), -8, 7, torch.int8, size)
            captured, _ = captured_calls([(op, args, {})])
            said = next(iter(captured.gm.graph.find_nodes(op="output"))).args[0][0].meta["val"]
            assert steps(said) == steps(op(*args)), (x.stride(), size)


def promised(op: Any, fakes: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
    """What the fake kernel says; None where it falls over its own strides, so that PyTorch traces no such call."""
    try:
        return op(*fakes, **kwargs)
    except RuntimeError as e:
        assert "out of bounds for storage" in str(e) and HERE in bug_of(op).torch_versions
        return None


def test_other_devices() -> None:
    """On CUDA a transform of more than three dimensions, or of the first two, is done in stages."""
    with FakeTensorMode():
        x = torch.empty(2, 3, 1, 4, 2, dtype=torch.complex64, device="cuda")
        gaps = torch.empty_strided((2, 2, 1, 4, 2), (24, 16, 8, 2, 1), device="cuda")
        said = fix_strides(aten._fft_c2c.default, (x, [0, 1, 3, 4], 0, True), {}, torch.empty_like(x))
        moved = fix_strides(
            torch.ops.prims.device_put.default,
            (gaps, torch.device("cpu")),
            {},
            torch.empty_strided(gaps.shape, gaps.stride()),
        )
    assert said.stride() == (1, 16, 48, 4, 2)
    assert moved.stride() == (16, 8, 8, 2, 1)


LAST, ROWS_OF_4 = torch.channels_last, torch.contiguous_format


@pytest.mark.parametrize(
    ("op", "args", "given"),
    [
        (aten.upsample_nearest2d.default, ([4, 6],), LAST),
        (aten._upsample_nearest_exact2d.default, ([4, 6],), LAST),
        (aten.upsample_bilinear2d.default, ([4, 6], False), LAST),
        (aten.upsample_nearest2d.vec, ([4, 6], None), LAST),
        (aten.pixel_unshuffle.default, (2,), ROWS_OF_4),
        (aten.channel_shuffle.default, (3,), ROWS_OF_4),
    ],
    ids=str,
)
def test_channels_last_on_cuda(op: Any, args: tuple[Any, ...], given: torch.memory_format) -> None:
    with enable_python_dispatcher(), FakeTensorMode():
        x = torch.empty(2, 3, 4, 4, device="cuda").to(memory_format=LAST)
        found = fix_strides(op, (x, *args), {}, op(x, *args))
    assert found.is_contiguous(memory_format=given)


def steps(t: torch.Tensor) -> list[int]:
    return [int(s) for n, s in zip(t.shape, t.stride(), strict=True) if n != 1]


# -- whole graphs -----------------------------------------------------------------------------------------------------


class Truthful(fx.Interpreter):
    """Runs a graph in eager and asserts that every operator gives the strides that its node promises."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op == "call_function" and isinstance(result, torch.Tensor):
            assert steps(result) == steps(n.meta["val"]), f"{n.target} gives {steps(result)}"
        return result


PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a view of it": lambda x: torch.view_as_real(torch.fft.rfft(x, dim=1)),
    "reshaped, which copies": lambda x: torch.fft.rfft(x, dim=0).reshape(-1).abs(),
    "as the backend likes": lambda x: torch.fft.fftn(x * 1j, dim=(2, 0)).abs() + x,
    "into what is repeated": lambda x: torch.slice_scatter(x[:, 0, :1].expand(3, 4), x[:, 1:3, 0], 1, 0, 2) * 2,
    "signs": lambda x: torch.copysign(x.mT, x.new_ones(3, 6, 4)).flatten(1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    torch.compiler.reset()
    program = PROGRAMS[name]

    def compiler(graph: Captured) -> Callable[[list[Any]], Any]:
        return lambda inputs: Truthful(graph.gm).run(*inputs, *graph.constants.values())

    x, y = (torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in range(2))
    want = program(x)
    got = torch.compile(program, backend=lambda gm, inputs: capture(gm, inputs, compiler))(y)
    torch.testing.assert_close(got, want)
    assert steps(got) == steps(want)
    cotangent = torch.randn_like(want)
    torch.testing.assert_close(torch.autograd.grad(got, y, cotangent), torch.autograd.grad(want, x, cotangent))


# -- other promises ---------------------------------------------------------------------------------------------------

OTHERS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "statistics without weights": (aten._batch_norm_with_update_functional.default, (X4, None, None, ZERO, ONE, *STEP)),
    "statistics with a weight alone": (
        aten._batch_norm_with_update_functional.default,
        (X4, W4, None, ZERO, ONE, *STEP),
    ),
    "inference without weights": (aten._batch_norm_no_update.default, (X4, None, None, ZERO, ONE, *STEP)),
    "no gradient of the input": (
        aten.native_batch_norm_backward.default,
        (X4, X4, W4, ZERO, ONE, ZERO, ONE, True, 1e-5, [False, True, True]),
    ),
    "no weights of attention": (
        aten._native_multi_head_attention.default,
        (*[torch.rand(2, 3, 4)] * 3, 4, 2, torch.rand(12, 4), torch.rand(12), torch.rand(4, 4), W4, None, False),
    ),
    "the loss of one example": (aten.multi_margin_loss.default, (W4, torch.tensor(1), 1, 1, None, 0)),
    "the loss of one example with its marks": (
        aten.multilabel_margin_loss_forward.default,
        (W4, torch.tensor([1, -1, 0, 0]), 0),
    ),
    "norms of halves": (aten._weight_norm_interface.default, (torch.rand(3, 5).half(), torch.rand(3, 1).half())),
    "shuffled, transposed": (aten.native_channel_shuffle.default, (X4.mT.contiguous().mT, 2)),
    "shuffled, channels-last": (aten.channel_shuffle.default, (X4.to(memory_format=torch.channels_last), 2)),
    "the gradient of halves whose softmax is of floats": (
        aten._log_softmax_backward_data.default,
        (X4.half(), X4.half(), 1, torch.float32),
    ),
    "softmax of halves": (aten._softmax_backward_data.default, (X4.half(), X4.half(), 1, torch.float32)),
    "attention of doubles": (aten._scaled_dot_product_flash_attention_for_cpu.default, (X4.double(),) * 3),
    **{
        f"{n} chunks of {len(x)}": (aten._chunk_cat.default, ([x, x], 2, n))
        for n in (1, 2)
        for x in (torch.rand(1, 4, 2).mT, torch.rand(2, 4, 3).mT)
    },
    "powers of each": (aten._foreach_pow.ScalarAndTensor, (2.0, [W4, SWAPPED, X4.mT])),
    **{
        name: (op, (x, size, *(() if op._overloadname == "default" else (None,))))
        for name, op, x, size in (
            ("rows enlarged", aten.upsample_nearest1d.vec, TURNED, [7]),
            ("rows enlarged from centers", aten._upsample_nearest_exact1d.vec, TURNED, [7]),
            ("volumes enlarged", aten.upsample_nearest3d.vec, VOLUMES[2], [4, 5, 6]),
            ("volumes enlarged alike", aten.upsample_nearest3d.default, VOLUMES[2], [4, 5, 6]),
            ("volumes enlarged from centers alike", aten._upsample_nearest_exact3d.default, VOLUMES[2], [4, 5, 6]),
            ("volumes enlarged from centers", aten._upsample_nearest_exact3d.vec, VOLUMES[2], [4, 5, 6]),
        )
    },
    **{
        f"bags of {str(dtype)[6:]} by mode {mode}{', scaled' if scaled else ''}": (
            aten._embedding_bag.default,
            (
                torch.rand(5, 4, dtype=dtype),
                torch.arange(5),
                torch.tensor([0, 2]),
                False,
                mode,
                False,
                torch.rand(5, dtype=dtype) if scaled else None,
            ),
        )
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
        for mode, scaled in ((0, False), (0, True), (1, False))
    },
    **{
        f"bags of bfloat16, {'the end given, ' if last else ''}by mode {mode}, no gradient": (
            aten._embedding_bag_forward_only.default,
            (
                torch.rand(5, 4, dtype=torch.bfloat16),
                torch.arange(5),
                torch.tensor([0, 2, 5]),
                False,
                mode,
                False,
                None,
                last,
            ),
        )
        for mode in (0, 1, 2)
        for last in (False, True)
    },
    "a norm along one element": (aten.linalg_vector_norm.default, (torch.rand(3, 1), 3, [-1])),
    "a norm along no dimension": (aten.linalg_vector_norm.default, (torch.rand(()), 3, [-1], True)),
    "scaled by a tensor": (aten._foreach_addcmul.Tensor, ([W4, X], [W4, X], [W4, X], torch.tensor([1.0, 2.0]))),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_promises(name: str) -> None:
    """How many results there are, their sizes and dtypes; calls that their own fake kernels refuse."""
    op, args = OTHERS[name]
    captured, _ = captured_calls([(op, args, {})])
    said = [
        getattr(n, "meta", {"val": n})["val"] for n in next(iter(captured.gm.graph.find_nodes(op="output"))).args[0]
    ]
    given = op(*args)
    given = given if isinstance(given, tuple | list) else [given]
    assert [v if v is None else (v.shape, v.dtype, steps(v)) for v in said] == [
        v if v is None else (v.shape, v.dtype, steps(v)) for v in given
    ]
