"""Calls, written by hand, of members that have neither samples nor an OpInfo that comes down to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

import torch

from keel.opset import MEMBERS

Written = tuple[str, tuple[Any, ...], dict[str, Any]]
"""An overload and arguments."""


def number(*shape: int, low: float = -4.0, high: float = 4.0, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + 100 * len(shape) + sum(shape))
    return torch.rand(shape, generator=generator) * (high - low) + low


def mask(*shape: int) -> torch.Tensor:
    return number(*shape) > 0


LISTS: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((3,), (2, 3), (), (0,)),
    ((17,), (33, 5), (129,)),
    ((1025,),),
    ((2, 3, 4, 5), (7,)),
    ((0, 3), (1,), (8, 8)),
)


def _parameters(name: str, overload: str) -> Mapping[str, str]:
    """The types of the parameters of an overload of a member of lists, by name; none if there is no such overload."""
    full = f"aten._foreach_{name}.{overload}"
    target = next((t for t in MEMBERS[f"foreach_{name}"].targets if str(t) == full), None)
    return {} if target is None else {a.name: str(a.type) for a in target._schema.arguments}  # type: ignore[attr-defined]


def _list_count(name: str, overload: str) -> int:
    """How many lists of tensors an overload takes."""
    return sum(kind == "List[Tensor]" for kind in _parameters(name, overload).values())


_NAMES = [name.removeprefix("foreach_") for name in MEMBERS if name.startswith("foreach_")]
ONE = [name for name in _NAMES if _list_count(name, "default") == 1 and name != "max"]
"""Of one list, of tensors that may have no elements."""
TWO = [name for name in _NAMES if _list_count(name, "List") == 2]
"""Of two lists, or of one and numbers."""


def lists(shapes: tuple[tuple[int, ...], ...], seed: int = 0) -> list[torch.Tensor]:
    return [number(*s, seed=seed + i) for i, s in enumerate(shapes)]


def _one(name: str) -> Iterator[Written]:
    for shapes in LISTS:
        yield f"_foreach_{name}.default", (lists(shapes),), {}


def _two(name: str) -> Iterator[Written]:
    for shapes in LISTS:
        x, count = lists(shapes), len(shapes)
        yield f"_foreach_{name}.List", (x, lists(shapes, 9)), {}
        yield f"_foreach_{name}.Scalar", (x, 2), {}
        yield f"_foreach_{name}.ScalarList", (x, [1.5 + i for i in range(count)]), {}
        if "alpha" in _parameters(name, "List"):
            yield f"_foreach_{name}.List", (x, lists(shapes, 9)), {"alpha": 2}
        if _parameters(name, "Tensor"):
            yield f"_foreach_{name}.Tensor", (x, number()), {}
        if _parameters(name, "ScalarAndTensor"):
            yield f"_foreach_{name}.ScalarAndTensor", (1.5, x), {}


def _three(name: str) -> Iterator[Written]:
    for shapes in LISTS:
        x, y, z, count = lists(shapes), lists(shapes, 9), lists(shapes, 18), len(shapes)
        yield f"_foreach_{name}.Scalar", (x, y, z, 0.5), {}
        yield f"_foreach_{name}.ScalarList", (x, y, z, [1.5 + i for i in range(count)]), {}
        yield f"_foreach_{name}.Tensor", (x, y, z, number(count)), {}


def _lerp() -> Iterator[Written]:
    for shapes in LISTS:
        x, y = lists(shapes), lists(shapes, 9)
        yield "_foreach_lerp.List", (x, y, lists(shapes, 18)), {}
        yield "_foreach_lerp.Scalar", (x, y, 0.75), {}
        yield "_foreach_lerp.ScalarList", (x, y, [0.25 * i for i in range(len(shapes))]), {}


def _other_lists() -> Iterator[Written]:
    for shapes in LISTS:
        yield "_foreach_copy.default", (lists(shapes), lists(shapes, 9)), {}
        filled = tuple(s for s in shapes if 0 not in s)
        yield "_foreach_max.default", (lists(filled),), {}
        for order in (2, 1, float("inf")):
            yield "_foreach_norm.Scalar", (lists(filled), order), {}
            yield "_foreach_powsum.Scalar", (lists(filled), order), {}
    yield "_foreach_mm.default", ([number(3, 4), number(17, 9)], [number(4, 5), number(9, 33)]), {}
    yield "_foreach_mm.default", ([number(8, 8)], [number(8, 1)]), {}


def _windows() -> Iterator[Written]:
    for n in (0, 1, 2, 7, 8, 17, 33, 129, 1025):
        for name in ("bartlett", "hann", "hamming", "blackman", "kaiser"):
            for dtype in (torch.float32, torch.float64, torch.bfloat16):
                yield f"{name}_window.default", (n,), {"dtype": dtype}
                yield f"{name}_window.periodic", (n, False), {"dtype": dtype}
        yield "hamming_window.periodic_alpha", (n, True, 0.6), {}
        yield "hamming_window.periodic_alpha_beta", (n, False, 0.6, 0.3), {}
        yield "kaiser_window.beta", (n, True, 8.5), {}
    for dtype in (torch.float32, torch.float64, torch.int64, torch.int32):
        for arguments in ((0, 7, 1), (1, 8, 3), (5, -4, -2), (0, 1024, 1), (-3, -3, 1)):
            yield "range.step", arguments, {"dtype": dtype}
        yield "range.default", (0, 16), {"dtype": dtype}


def _views() -> Iterator[Written]:
    """Squares, of which a wrong turn has the same sizes; counted from the end, in steps, from an offset."""
    cube, square = number(4, 4, 4), number(7, 7)
    for dims in ([1, 2, 0], [2, 0, 1], [-1, 0, 1], [0, 2, 1]):
        yield "permute.default", (cube, dims), {}
    for x in (square, number(9, 8), number(3, 20)):
        n = x.shape[1]
        yield "slice.Tensor", (x, 1, -5, -1, 2), {}
        yield "slice.Tensor", (x, -1, 1, 99, 3), {}
        yield "slice.Tensor", (x, 0, -2, 99, 1), {}
        yield "select.int", (x, -1, -2), {}
        yield "select.int", (x, 0, -1), {}
        yield "view.default", (x, [-1]), {}
        yield "view.default", (x, [x.numel() // n, 1, n]), {}
        yield "as_strided.default", (x, [2, 3], [n, 2], 3), {}
        yield "as_strided.default", (x, [3, 2], [1, n], n + 1), {}
    yield "view.default", (number(6, 8), [8, 6]), {}
    yield "view.default", (number(4, 9), [2, 2, 9]), {}
    yield "transpose.int", (cube, -1, 0), {}
    for start, end, step in ((2**24 + 1, 2**24 + 12, 1), (-(2**40), -(2**40) + 30, 7), (2**31, 2**31 - 9, -2)):
        yield "arange.start_step", (start, end, step), {"dtype": torch.int64}


def _places() -> Iterator[Written]:
    for x in (number(2, 3), number(17, 9), number(5, 8, 3), number(33, 2)):
        yield "copy.default", (x, x.flip(0)), {}
        yield "copy.default", (x, number(1, x.shape[-1])), {}
        yield "detach_copy.default", (x,), {}
        yield "select_copy.int", (x, 0, 1), {}
        yield "select_copy.int", (x, -1, -1), {}
        yield "slice_copy.Tensor", (x, 0, 1, 2), {}
        yield "slice_copy.Tensor", (x, 1, -2, None, 2), {}
        yield "_reshape_copy.default", (x, [x.numel()]), {}
        yield "squeeze_copy.dims", (x[None], [0, -1]), {}
        yield "view_copy.dtype", (x, torch.int32), {}
        yield "_reshape_alias.default", (x, [x.numel()], [1]), {}
        yield "_reshape_alias_copy.default", (x, [x.numel()], [1]), {}
        yield "resize.default", (x, [2, x.numel() // 2]), {}
        yield "resize_as.default", (x, number(x.numel())), {}
        index = torch.arange(4).reshape(2, 2) % x.shape[0]
        if x.dim() == 2:
            for reduce in ("add", "multiply"):
                yield "scatter.reduce", (x, 0, index, number(2, 2)), {"reduce": reduce}
                yield "scatter.value_reduce", (x, 0, index, 2), {"reduce": reduce}
        yield "unique_dim_consecutive.default", (x.round().repeat_interleave(2, 0), 0, True, True), {}


def _forms() -> Iterator[Written]:
    for x in (number(2, 3), number(17, 9), number(5, 8, 4), number(33)):
        y = number(*x.shape, seed=5)
        yield "_add_relu.Tensor", (x, y), {"alpha": 2}
        yield "_add_relu.Scalar", (x, 1.5), {}
        yield "_aminmax.default", (x,), {}
        yield "_aminmax.dim", (x, -1, True), {}
        yield "_is_all_true.default", (x > -9,), {}
        yield "_is_all_true.default", (x > 0,), {}
        yield "_is_any_true.default", (x > 9,), {}
        yield "_is_any_true.default", (x > 0,), {}
        yield "_is_all_true.default", (x[:0] > 0,), {}
        yield "_is_any_true.default", (x[:0] > 0,), {}
        yield "_stack.default", ([x, y], 0), {}
        yield "_stack.default", ([x, y, x], -1), {}
        yield "_logcumsumexp.default", (x, 0), {}
        yield "_index_put_impl.default", (x, [torch.tensor([0, 1, 0])], number(*x.shape[1:])), {"accumulate": True}
        yield "_index_put_impl.default", (x, [torch.tensor([0, 1])], number(*x.shape[1:])), {"unsafe": True}
        yield "_neg_view_copy.default", (x,), {}
        yield "_conj_copy.default", (torch.complex(x, y),), {}
        yield "view_as_real_copy.default", (torch.complex(x, y),), {}
        yield "view_as_complex_copy.default", (number(*x.shape, 2),), {}
        for dtype in (torch.float64, torch.bfloat16, torch.int32):
            yield "quantized_decomposed.convert_element_type.no_fuse", (x, dtype), {}
        yield "_masked_scale.default", (x, number(*x.shape, low=0, high=1), 1.25), {}
    for n in (2, 8, 34):
        half, x, dx = number(3, n // 2), number(3, n), number(3, n, seed=7)
        yield "glu_jvp.default", (half, x, dx, -1), {}
        yield "glu_backward_jvp.default", (number(3, n), half, x, number(3, n // 2, seed=3), dx, -1), {}
        yield "_compute_linear_combination.default", (number(3, n), number(4, 3)), {}
        edges = number(n).sort().values
        yield "histogram.bins_tensor", (number(40), edges), {}
        yield "histogram.bins_tensor", (number(40), edges), {"weight": number(40, low=0), "density": True}
        yield "_histogramdd_from_bin_tensors.default", (number(40, 2), [edges, edges]), {}


def _jagged() -> Iterator[Written]:
    for ends, longest in (([0, 2, 5], 3), ([0, 0, 4], 5), ([0, 7, 8, 17], 4)):
        offsets = torch.tensor(ends)
        yield "_jagged_to_padded_dense_forward.default", (number(ends[-1], 3), [offsets], [longest], -1.0), {}
        dense = number(len(ends) - 1, longest, 3)
        yield "_padded_dense_to_jagged_forward.default", (dense, [offsets]), {}
        yield "_padded_dense_to_jagged_forward.default", (dense, [offsets], ends[-1]), {}


def _norms() -> Iterator[Written]:
    for shape in ((3, 8), (2, 5, 33), (1, 129)):
        n = shape[-1]
        for weight in (None, number(n)):
            yield "_fused_rms_norm.default", (number(*shape), [n], weight, 1e-5), {}
            yield "_fused_rms_norm.default", (number(*shape), [n], weight, None), {}
            rstd = number(*shape[:-1], 1, low=0.5, high=2)
            yield (
                "_fused_rms_norm_backward.default",
                (number(*shape, seed=3), number(*shape), [n], rstd, weight, [True, weight is not None]),
                {},
            )
        v, g = number(*shape), number(shape[0], *[1] * (len(shape) - 1), low=0.5)
        yield "_weight_norm_interface.default", (v, g, 0), {}
        yield (
            "_weight_norm_interface_backward.default",
            (number(*shape, seed=2), v, g, number(*g.shape, low=0.5, seed=4), 0),
            {},
        )
    for sizes in ((4, 3), (2, 3, 5), (2, 5, 4, 7)):
        c = sizes[1]
        w, b, m, var = number(c), number(c, seed=1), number(c, seed=2), number(c, low=0.5, seed=3)
        for training in (True, False):
            yield "_native_batch_norm_legit_functional.default", (number(*sizes), w, b, m, var, training, 0.1, 1e-5), {}
            yield (
                "_native_batch_norm_legit_functional.default",
                (number(*sizes), None, None, m, var, training, 0.25, 1e-3),
                {},
            )
        for weights in ((w, b), (None, None)):
            yield "_native_batch_norm_legit_no_training.default", (number(*sizes), *weights, m, var, 0.1, 1e-5), {}
            yield "_batch_norm_with_update_functional.default", (number(*sizes), *weights, m, var, 0.1, 1e-5), {}
            yield "_batch_norm_no_update.default", (number(*sizes), *weights, m, var, 0.1, 1e-5), {}


def _numbers() -> Iterator[Written]:
    for n in (1, 7, 33):
        edges = number(n).sort().values
        for more in ({}, {"right": True}, {"out_int32": True}):
            for value in (-9.0, 0.0, 0.5, 9.0):
                yield "bucketize.Scalar", (value, edges), dict(more)
        yield "embedding_renorm.default", (number(9, n), torch.tensor([0, 3, 3, 8]), 1.0, 2.0), {}
    for x in (number(3, 17), number(40)):
        noise = torch.ones_like(x)
        yield "rrelu_with_noise_functional.default", (x, noise, 0.125, 0.5, False), {}
        yield "rrelu_with_noise_functional.default", (x, noise, 0.25, 0.25, True), {}


def _copies() -> Iterator[Written]:
    """Members that copy elements in another order or more than once, or that add elements of their own."""
    for shape in ((2, 3), (5, 4), (3, 17), (33, 2), (8, 8)):
        yield "t_copy.default", (number(*shape),), {}
        yield "repeat.default", (number(*shape), [2, 3]), {}
        yield "repeat.default", (number(*shape), [2, 1, 4]), {}
        yield "repeat.default", (number(*shape), [1, 2]), {}
        yield "transpose_copy.int", (number(*shape), 0, -1), {}
        yield "unfold_copy.default", (number(*shape), 0, 2, 1), {}
        yield "rot90.default", (number(*shape), 1, [0, 1]), {}
        yield "rot90.default", (number(*shape), -3, [1, 0]), {}
        count = prod(shape)
        yield "masked_scatter.default", (number(*shape), mask(*shape), number(2 * count + 3)), {}
        yield "masked_scatter.default", (number(*shape), mask(shape[1]), number(count, 2)), {}
        yield "repeat.default", (number(*shape), [3, 2, 1, 2]), {}
        for value in (2.5, -3, 7):
            yield "full_like.default", (number(*shape), value), {}
            yield "new_full.default", (number(*shape), [3, 4], value), {}
            yield "fill.Scalar", (number(*shape), value), {}


def _edges() -> Iterator[Written]:
    """Segments of nothing that begin with nothing, weights with fractions, integers that float32 cannot hold."""
    for reduce in ("sum", "mean", "max", "min", "prod"):
        yield (
            "segment_reduce.default",
            (number(6, 3), reduce),
            {"lengths": torch.tensor([2, 0, 4]), "axis": 0, "unsafe": False},
        )
        yield (
            "segment_reduce.default",
            (number(17), reduce),
            {"lengths": torch.tensor([0, 8, 0, 9]), "axis": 0, "unsafe": False},
        )
    for n in (7, 33):
        yield "bincount.default", (torch.arange(n) % 5, number(n)), {}
        yield "bincount.default", (torch.arange(n) * 3 % 8, number(n), 11), {}
    for value in (2**24 + 1, -(2**31) - 3, 2**53 + 1, 16777219.0):
        yield "full.default", ([3, 4], value), {}
        yield "full.default", ([17], value), {"dtype": torch.int64 if isinstance(value, int) else torch.float64}


def _attributes() -> Iterator[Written]:
    """Attributes that samples leave at their defaults, and dimensions that count from the end."""
    for x in (number(4, 6), number(6, 5, 8), number(17, 10)):
        for name in ("split_copy.Tensor", "unsafe_split.Tensor"):
            yield name, (x, 2, 1), {}
            yield name, (x, 3, -1), {}
        sizes = [1, x.shape[-1] - 3, 2]
        for name in ("unsafe_split_with_sizes.default", "split_with_sizes_copy.default"):
            yield name, (x, sizes, -1), {}
        yield "slice_scatter.default", (x, number(*x.shape[:-1], 2, seed=3)), {"dim": -1, "start": -3, "end": -1}
        yield "slice_backward.default", (number(*x.shape[:-1], 2), list(x.shape), -1, 1, 3, 1), {}
        yield "diag_embed.default", (x, 1, -1, -2), {}
        yield "diag_embed.default", (x, 0, 0, -1), {}
        yield "diagonal_backward.default", (number(*x.shape[:-2], 3), [*x.shape[:-2], 3, 4], 0, -2, -1), {}
        repeated = x.round().repeat_interleave(2, 0)
        for inverse, counts in ((True, False), (False, True)):
            yield "unique_consecutive.default", (repeated.flatten(), inverse, counts), {}
            yield "unique_consecutive.default", (repeated, inverse, counts, 0), {}
            yield "unique_dim_consecutive.default", (repeated, 0, inverse, counts), {}
            yield "unique_dim.default", (repeated, 0, True, inverse, counts), {}
            yield "unique_dim.default", (repeated.transpose(0, -1), -1, True, inverse, counts), {}
    for shape in ((4, 3), (2, 3, 5), (3, 7)):
        x, y = number(*shape), number(*shape, seed=5)
        yield "linalg_cross.default", (x, y), {"dim": shape.index(3) - len(shape)}
    for shape in ((3, 3), (3, 5, 3), (3, 3, 3)):  # the first of them is another
        yield "linalg_cross.default", (number(*shape), number(*shape, seed=5)), {"dim": -1}
    for n in (5, 17):
        yield "bucketize.Tensor", (torch.arange(-6, 7), number(n).sort().values), {}
        yield "bucketize.Tensor", (torch.arange(-4, 4).view(2, 4), number(n).sort().values), {"right": True}
    for rows in (4, 9):  # near each other
        near = number(rows, 5, low=100.0, high=100.03), number(6, 5, low=100.0, high=100.03, seed=3)
        yield "_cdist_forward.default", (*near, 2.0, 2), {}
    for m, k, p in ((5, 3, 4), (8, 8, 3), (7, 2, 7)):
        factors, tau = torch.geqrf(number(m, k))
        for transposed in (False, True):
            yield "ormqr.default", (factors, tau, number(p, m), False, transposed), {}
            yield "ormqr.default", (factors, tau, number(m, p), True, transposed), {}
    for n in (3, 8):
        x = number(n, n)
        low = number(n + 2, 2) @ number(2, n, seed=5)
        even = torch.complex(x + x.t(), x - x.t())
        for hermitian in (False, True):
            yield "linalg_ldl_factor_ex.default", (even,), {"hermitian": hermitian}
            made, pivots, _ = torch.linalg.ldl_factor_ex(even, hermitian=hermitian)
            yield (
                "linalg_ldl_solve.default",
                (made, pivots, torch.complex(number(n, 2), number(n, 2, seed=3))),
                {"hermitian": hermitian},
            )
        yield "linalg_pinv.atol_rtol_tensor", (number(n + 2, 2).round() @ number(2, n, seed=5).round(),), {}
        yield "linalg_pinv.atol_rtol_tensor", (low,), {"rtol": torch.tensor(0.5)}
        yield "linalg_pinv.atol_rtol_tensor", (low,), {"atol": torch.tensor(4.0)}
        yield "linalg_pinv.atol_rtol_tensor", (x + x.t(),), {"hermitian": True}
        yield "linalg_pinv.atol_rtol_tensor", (x + x.t(),), {"hermitian": True, "rtol": torch.tensor(0.4)}


def _counts() -> Iterator[Written]:
    """Histograms with ranges, weights and densities; bags that say where the last one ends."""
    for n in (40, 129):
        x, weight = number(n), number(n, low=0, seed=7)
        for more in (
            {"range": [-1.0, 2.5]},
            {"weight": weight},
            {"density": True},
            {"range": [-3.0, 1.0], "weight": weight, "density": True},
        ):
            yield "histogram.bin_ct", (x, 7), dict(more)
        pairs = number(n, 2)
        for more in (
            {"range": [-1.0, 2.5, -2.0, 0.5]},
            {"weight": weight},
            {"density": True},
            {"range": [-3.0, 1.0, -3.5, 3.5], "weight": weight, "density": True},
        ):
            yield "_histogramdd_from_bin_cts.default", (pairs, [4, 3]), dict(more)
            yield "_histogramdd_bin_edges.default", (pairs, [4, 3]), dict(more)
        edges = torch.tensor([-3.5, -1.0, 0.0, 1.25, 3.5])
        yield "_histogramdd_from_bin_tensors.default", (pairs, [edges, edges[:3]]), {"weight": weight}
    for mode in (0, 1, 2):
        indices = torch.tensor([1, 4, 4, 2, 0, 6, 1])
        yield (
            "_embedding_bag.default",
            (number(7, 5), indices, torch.tensor([0, 3, 3, 7]), False, mode, False, None, True),
            {},
        )
        yield (
            "_embedding_bag.default",
            (number(7, 5), indices, torch.tensor([0, 3, 3]), False, mode, False, None, False, 4),
            {},
        )


def _long() -> Iterator[Written]:
    """More places than 16 bits count."""
    for shape in ((70001,), (300, 257)):
        yield "nonzero.default", (number(*shape),), {}


def handwritten_calls() -> Mapping[str, list[Written]]:
    """The calls, by the full name of the overload."""
    made: list[Callable[[], Iterator[Written]]] = [
        *(lambda name=name: _one(name) for name in ONE),
        *(lambda name=name: _two(name) for name in TWO),
        lambda: _three("addcmul"),
        lambda: _three("addcdiv"),
        _lerp,
        _other_lists,
        _windows,
        _views,
        _places,
        _forms,
        _jagged,
        _norms,
        _numbers,
        _copies,
        _edges,
        _attributes,
        _counts,
        _long,
    ]
    results: dict[str, list[Written]] = {}
    for calls in made:
        for overload, args, kwargs in calls():
            full = overload if overload.startswith("quantized_decomposed") else f"aten.{overload}"
            results.setdefault(full, []).append((full, args, kwargs))
    return results
