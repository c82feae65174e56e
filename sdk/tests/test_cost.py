"""Data sheets, and the time of calls by them."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch

import keel
from keel.cost import Cost, Link, Pattern, price, read_sheets
from keel.cost.roofline import crossing
from keel.cost.sheet import LONGEST, SLOWEST, slowed
from keel.cost.work import named, work_of
from keel.errors import KeelError
from keel.types import Call, TensorType

aten = torch.ops.aten
SHEET = Cost(flops={torch.float32: 1e9, torch.bfloat16: 4e9}, scalars=1e8, bandwidth=1e9, call=1e-6)


def t(*shape: int | sympy.Expr, dtype: torch.dtype = torch.float32) -> TensorType:
    return TensorType.dense(dtype, shape)


def call(op, *args, out: TensorType, **kwargs) -> Call:
    return Call(op, args, kwargs, (out,))


MM = call(aten.mm.default, t(20, 30), t(30, 40), out=t(20, 40))
ADD = call(aten.add.Tensor, t(100), t(100), out=t(100))


def test_a_product_takes_two_operations_an_element_and_a_step() -> None:
    work = work_of(MM)
    assert work.flops == 2 * 20 * 30 * 40 and work.scalars == 0
    assert work.read == (2400.0, 4800.0) and work.written == (3200.0,)


@pytest.mark.parametrize(
    ("op", "args", "out", "flops"),
    [
        (
            aten.convolution.default,
            (t(2, 3, 8, 8), t(4, 3, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
            t(2, 4, 8, 8),
            2 * 2 * 4 * 8 * 8 * 3 * 9,
        ),
        (aten.linalg_qr.default, (t(5, 6, 4),), t(5, 6, 4), 4 * 5 * 6 * 4 * 4),
        (aten._fft_r2c.default, (t(8, 16), [1], 0, True), t(8, 9, dtype=torch.complex64), 5 * 128 * 4),
    ],
    ids=["convolution", "qr", "fft"],
)
def test_operations_of(op, args, out: TensorType, flops: float) -> None:
    assert work_of(call(op, *args, out=out)).flops == flops


TABLE, AT = t(5000, 16), t(3, 4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("op", "args", "out", "elements", "read"),
    [
        (aten.embedding.default, (TABLE, AT), t(3, 4, 16), 192, (768, 96)),
        (aten.index.Tensor, (TABLE, [None, AT]), t(5000, 3, 4), 60000, (240000, 96)),
        (aten.gather.default, (TABLE, 0, AT), t(3, 4), 12, (48, 96)),
        (aten.index.Tensor, (t(2), [AT]), t(3, 4), 12, (8, 96)),
        (aten.searchsorted.Tensor, (t(1000), t(7)), t(7, dtype=torch.int64), 70, (280, 28)),
        (aten.scatter.value, (TABLE, 0, AT, 0.0), TABLE, 12, (320000, 96)),
        (aten.index_put.default, (TABLE, [AT], t(16)), TABLE, 192, (320000, 96, 64)),
        (aten.index_add.default, (TABLE, 0, t(4, dtype=torch.int64), t(4, 16)), TABLE, 64, (320000, 32, 256)),
        (aten.index_fill.int_Scalar, (TABLE, 1, t(2, dtype=torch.int64), 0.0), TABLE, 10000, (320000, 16)),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_places_that_are_data_are_work_and_the_rest_is_traffic(
    op, args, out: TensorType, elements: float, read: tuple[float, ...]
) -> None:
    work = work_of(call(op, *args, out=out))
    assert work.scalars == elements and work.read == read and work.written == (out.numel * out.dtype.itemsize,)


def test_a_sort_takes_a_logarithm_more_than_an_addition() -> None:
    sort = Call(aten.sort.stable, (t(1024),), {"stable": True}, (t(1024), t(1024, dtype=torch.int64)))
    assert work_of(sort).scalars == 1024 * 10


def test_the_longer_of_arithmetic_and_traffic_counts() -> None:
    assert price(MM, SHEET).alone == pytest.approx(48000 / 1e9 + 1e-6)
    slow = Cost(flops=SHEET.flops, scalars=1e8, bandwidth=1e6)
    assert price(MM, slow).alone == pytest.approx(10400 / 1e6)


def test_dtypes_have_their_rates_and_others_the_slowest() -> None:
    def product(dtype: torch.dtype) -> float:
        fast = Cost(flops=SHEET.flops, scalars=1.0, bandwidth=math.inf)
        return price(call(aten.mm.default, *[t(20, 20, dtype=dtype)] * 2, out=t(20, 20, dtype=dtype)), fast).alone

    assert product(torch.float32) == pytest.approx(4 * product(torch.bfloat16))
    assert product(torch.float64) == product(torch.float32)


def test_what_a_fusing_backend_passes_on_costs_memory_only_where_it_leaves() -> None:
    fused = price(ADD, Cost(flops=SHEET.flops, scalars=1e8, bandwidth=1e9, fuses=True, call=1.0))
    assert fused.alone == pytest.approx(1e-6)
    assert fused.read == pytest.approx((4e-7, 4e-7)) and fused.written == pytest.approx((4e-7,))
    alone = price(ADD, SHEET)
    assert alone.alone == pytest.approx(1.2e-6 + 1e-6) and alone.read == (0, 0)


def test_views_are_free_and_expanded_operands_are_as_large_as_their_memory() -> None:
    view = call(aten.t.default, t(20, 30), out=TensorType(torch.float32, (30, 20), (1, 30), torch.device("cpu")))
    assert price(view, SHEET).alone == 0
    row = TensorType(torch.float32, (50, 30), (0, 1), torch.device("cpu"))
    assert work_of(call(aten.add.Tensor, row, t(50, 30), out=t(50, 30))).read == (120, 6000)


def test_symbols_count_as_what_is_typical_of_them() -> None:
    n = sympy.Symbol("s0", integer=True, positive=True)
    product = call(aten.mm.default, t(n, 30), t(30, 40), out=t(n, 40))
    assert work_of(product, {"s0": 20}).flops == work_of(MM).flops
    assert work_of(product).flops == 2 * 1024 * 30 * 40


@pytest.mark.parametrize("key", ["aten.mm.default", "aten.mm"])
def test_what_is_known_of_an_operator_overrides(key: str) -> None:
    for known in (0.5, lambda c: c.out[0].numel / 1600):
        sheet = Cost(flops=SHEET.flops, scalars=1e8, bandwidth=1e9, seconds={key: known})
        assert price(MM, sheet).alone == 0.5


@pytest.mark.parametrize("key", ["aten.add.Tensor", "aten.add", "pointwise"])
def test_weights_make_operators_dearer(key: str) -> None:
    sheet = Cost(flops=SHEET.flops, scalars=1e8, bandwidth=math.inf, weights={key: 3.0, "contraction": 2.0})
    assert price(ADD, sheet).alone == pytest.approx(3e-6)
    assert price(MM, sheet).alone == pytest.approx(2 * 48000 / 1e9)


def convolution(window: int, channels: int, groups: int = 1) -> Call:
    weight = t(32, channels, window, window)
    return call(
        aten.convolution.default,
        t(1, channels * groups, 8, 8),
        weight,
        None,
        [1, 1],
        [window // 2] * 2,
        [1, 1],
        False,
        [0, 0],
        groups,
        out=t(1, 32, 8, 8),
    )


@pytest.mark.parametrize(
    ("made", "kinds"),
    [
        (convolution(3, 16), ()),
        (convolution(1, 16), ("pointwise convolution",)),
        (convolution(3, 4, 8), ("grouped convolution",)),
        (convolution(1, 4, 8), ("grouped convolution",)),
        (convolution(3, 1, 32), ("depthwise convolution", "grouped convolution")),
    ],
    ids=["spatial", "pointwise", "grouped", "grouped pointwise", "depthwise"],
)
def test_convolutions_are_of_kinds(made: Call, kinds: tuple[str, ...]) -> None:
    assert named(made) == ("aten.convolution.default", "aten.convolution", *kinds, "convolution")
    assert named(replace(made, op=aten._convolution.default))[2:-1] == kinds


def test_a_kind_has_its_weight_and_its_passes() -> None:
    sheet = Cost(
        flops={torch.float32: 1e9},
        scalars=1.0,
        bandwidth=math.inf,
        weights={"convolution": 2.0, "pointwise convolution": 3.0},
    )
    work = 2 * 32 * 8 * 8 * 16
    assert price(convolution(3, 16), sheet).alone == pytest.approx(2 * 9 * work / 1e9)
    assert price(convolution(1, 16), sheet).alone == pytest.approx(3 * work / 1e9)
    slow = Cost(flops={torch.float32: math.inf}, scalars=1.0, bandwidth=1e9, passes={"depthwise convolution": 3.0})
    size = 4 * (2 * 32 * 64 + 32 * 9)
    assert price(convolution(3, 1, 32), slow).alone == pytest.approx(3 * size / 1e9)
    assert price(MM, slow).alone == pytest.approx(10400 / 1e9)


def gradients(made: Call, mask: list[bool]) -> Call:
    x, weight, _, *rest = made.args
    outs = tuple(t for t, wanted in zip((x, weight), mask, strict=False) if wanted)
    return Call(aten.convolution_backward.default, (made.out[0], x, weight, None, *rest, mask), {}, outs)


def test_each_gradient_of_a_convolution_is_as_much_work_as_it_is() -> None:
    for made in (convolution(3, 16), convolution(3, 1, 32), convolution(1, 4, 8)):
        forward = work_of(made).flops
        assert work_of(gradients(made, [True, True, False])).flops == 2 * forward
        assert work_of(gradients(made, [False, True, False])).flops == forward
    assert named(gradients(convolution(3, 1, 32), [True, True, False]))[2:] == (
        "depthwise convolution backward",
        "grouped convolution backward",
        "convolution backward",
        "depthwise convolution",
        "grouped convolution",
        "convolution",
    )


def test_of_several_passes_one_is_beside_the_arithmetic() -> None:
    sheet = Cost(flops={torch.float32: 1e9}, scalars=1.0, bandwidth=1e9, passes={"convolution": 3.0, "aten.mm": 0.5})
    size, work = 4 * (2 * 32 * 64 + 32 * 9), 2 * 32 * 64 * 9
    assert price(convolution(3, 1, 32), sheet).alone == pytest.approx(max(work, size) / 1e9 + 2 * size / 1e9)
    assert price(MM, replace(sheet, flops={torch.float32: 1e12})).alone == pytest.approx(5200 / 1e9)


def test_a_pool_is_as_much_work_as_its_windows_have_elements() -> None:
    pool = Call(
        aten.max_pool2d_with_indices.default,
        (t(1, 8, 9, 9), [3, 3], [2, 2], [1, 1]),
        {},
        (t(1, 8, 5, 5), t(1, 8, 5, 5, dtype=torch.int64)),
    )
    assert work_of(pool).scalars == 8 * 25 * 9


def test_files_of_sheets_are_read_by_name(tmp_path: Path) -> None:
    file = tmp_path / "sheets.json"
    file.write_text(json.dumps({"machine": {}, "sheets": {"acme": SHEET.as_json()}}))
    assert read_sheets(file) == {"acme": SHEET}
    file.write_text("[]")
    with pytest.raises(KeelError, match="holds no data sheets"):
        read_sheets(file)


def test_tensors_cross_through_the_hosts_memory() -> None:
    far = Cost(flops=SHEET.flops, scalars=1e8, bandwidth=1e9, link=Link(1e6, 1e-3))
    assert crossing(SHEET, SHEET, 1e6) == 0
    assert crossing(far, SHEET, 1e6) == crossing(SHEET, far, 1e6) == pytest.approx(1.001)
    assert crossing(far, far, 1e6) == pytest.approx(2.002)


def test_on_a_slowed_sheet_everything_takes_longer() -> None:
    sheet = replace(
        SHEET,
        link=Link(1e6, 1e-3),
        launch=1e-6,
        patterns=(Pattern(("aten.mm",), 1e-3),),
        seconds={"aten.sin": 0.5, "aten.cos": lambda call: 0.25},
    )
    slow = slowed(sheet, 2.0)
    sin, cos = (call(op, t(100), out=t(100)) for op in (aten.sin.default, aten.cos.default))
    for each in (ADD, MM, sin, cos):
        assert price(each, slow).alone == pytest.approx(2 * price(each, sheet).alone)
    assert crossing(slow, SHEET, 1e6) == pytest.approx(2 * crossing(sheet, SHEET, 1e6))
    assert slow.launch == 2e-6 and slow.patterns[0].seconds == 2e-3


def test_a_doubt_is_a_share() -> None:
    with pytest.raises(KeelError, match="a doubt of"):
        replace(SHEET, doubt=1.0)


def test_sheets_are_data() -> None:
    sheet = Cost(
        flops=SHEET.flops,
        scalars=1e8,
        bandwidth=1e9,
        link=Link(1e6, 1e-3),
        weights={"sort": 2.0},
        passes={"depthwise convolution": 3.0},
        seconds={"aten.mm": 0.5},
        doubt=0.3,
        border=2.0,
        copies=1.5,
    )
    assert Cost.from_json(json.dumps(sheet.as_json())) == sheet
    assert Cost.from_json(json.dumps(SHEET.as_json())) == SHEET


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"flops": {"f33": 1}}', '{"flops": {"f32": 1}, "speed": 3}'])
def test_what_is_no_sheet_is_told(text: str) -> None:
    with pytest.raises(KeelError, match="bad-text"):
        Cost.from_json(text)


def test_sheets_with_patterns_are_data() -> None:
    sheet = replace(SHEET, patterns=(Pattern(("aten.mm", "pointwise")), Pattern(("sort",), 1e-3)))
    assert Cost.from_json(json.dumps(sheet.as_json())) == sheet
    assert (
        Cost.from_json(json.dumps({k: v for k, v in SHEET.as_json().items() if k not in ("patterns", "passes")}))
        == SHEET
    )


UNKNOWN = ("aten", "aten.nothing", "torch_attn.nothing.default", "os.system", "x" * 10_000)


@pytest.mark.parametrize(
    ("field", "name"),
    [*((f, n) for f in ("weights", "passes", "seconds", "patterns") for n in UNKNOWN), ("seconds", "sort")],
)
def test_names_in_files_of_sheets_import_nothing(field: str, name: str, tmp_path: Path) -> None:
    """To say what was meant, PyTorch's libraries of operators would be imported, Dynamo with them."""
    entry = [{"names": [name], "seconds": None}] if field == "patterns" else {name: 1.0}
    file = tmp_path / "sheets.json"
    file.write_text(json.dumps({"sheets": {"acme": {**SHEET.as_json(), field: entry}}}))
    before = {*sys.modules}
    with pytest.raises(KeelError, match=r"is neither an operator of this PyTorch nor a kind|more than 100") as raised:
        read_sheets(file)
    assert raised.value.code == "bad-file" and {*sys.modules} == before


TOO_FAR: dict[str, dict[str, Any]] = {
    "a slow rate": {"scalars": 1e-308},
    "slow memory": {"bandwidth": 5e-324},
    "slow flops": {"flops": {torch.float32: 1e-31}},
    "a long launch": {"launch": 1e308},
    "no end": {"call": math.inf},
    "many copies": {"copies": 1e31},
    "a heavy weight": {"weights": {"aten.mm": 1e308}},
    "many passes": {"passes": {"aten.mm": 1e31}},
    "a long call": {"seconds": {"aten.mm": math.inf}},
}


@pytest.mark.parametrize("case", TOO_FAR)
def test_numbers_that_sums_would_take_beyond_floats_are_refused(case: str, tmp_path: Path) -> None:
    fields = {"flops": {torch.float32: 1e9}, "scalars": 1e8, "bandwidth": 1e9, **TOO_FAR[case]}
    with pytest.raises(KeelError, match="bad-plugin"):
        Cost(**fields)
    plain = {**fields, "flops": {"f32": fields["flops"][torch.float32]}}
    file = tmp_path / "sheets.json"
    file.write_text(json.dumps({"sheets": {"acme": plain}}))
    with pytest.raises(KeelError, match="bad-file"):
        read_sheets(file)


@pytest.mark.slow
def test_a_graph_is_placed_by_the_furthest_numbers() -> None:
    slow = Cost(
        flops={torch.float32: SLOWEST},
        scalars=SLOWEST,
        bandwidth=SLOWEST,
        launch=LONGEST,
        call=LONGEST,
        weights={"aten.mm": LONGEST},
        passes={"aten.mm": LONGEST},
        border=LONGEST,
        copies=LONGEST,
        link=Link(SLOWEST, LONGEST),
        doubt=math.nextafter(1.0, 0.0),
    )
    fast = Cost(flops={torch.float32: 1e300}, scalars=math.inf, bandwidth=1e300, doubt=0.0)
    assert slowed(slow, 2.0) == slow and slowed(fast, 1e-16).scalars == math.inf
    x = torch.randn(4, 4)
    for costs in ((slow, fast), (fast, slow), (slow, slow), (fast, fast)):
        torch.compiler.reset()
        sheets = dict(zip(("interp", "eager"), costs, strict=True))
        run = keel.compile(lambda x: (x @ x).softmax(1), backends=["interp", "eager"], costs=sheets, placement="cost")
        torch.testing.assert_close(run(x), (x @ x).softmax(1))
