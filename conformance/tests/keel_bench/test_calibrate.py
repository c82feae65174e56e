"""Data sheets that are measured: what is slow comes out slow, and files keep what they had."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import keel
from keel import Backend, Rule, Support
from keel.cost import Link
from keel.plugin import CompileContext, Option, PreparedConstants
from keel_bench import calibrate

AT_ALL = Support((Rule(ops=("*",), dtypes=frozenset({torch.float32, torch.int64})),))

LAYERS = tuple(calibrate._layers())
SMALL = calibrate.Probed("cpu", product=128, large=1 << 16, small=1 << 10, images=4)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "PATIENCE", 0.01)
    monkeypatch.setattr(calibrate, "_layers", lambda: [replace(layer, side=7) for layer in LAYERS])
    monkeypatch.setattr(calibrate, "probed", lambda device: SMALL)


def waiting(seconds: float) -> Callable[[torch.fx.GraphModule], Callable[..., Any]]:
    def compile(gm: torch.fx.GraphModule) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            end = time.process_time() + seconds
            while time.process_time() < end:
                pass
            return gm(*args)

        return run

    return compile


def test_a_backend_that_prepares_constants_and_has_options_is_measured() -> None:
    levels = list[int]()

    def compile(gm: torch.fx.GraphModule, ctx: CompileContext) -> PreparedConstants:
        levels.append(ctx.options["level"])
        return PreparedConstants(lambda constants: gm, lambda prepared, *args: prepared(*args))

    option = Option(name="level", type=int, default=3, sentence="How hard to optimize.")
    vendor = Backend(name="acme", device="cpu", supports=AT_ALL, compile=compile, static=True, options=(option,))
    sheet = calibrate.calibrate([vendor], "cpu")["acme"]
    assert set(sheet.flops) == {torch.float32} and set(levels) == {3}


def test_what_is_slow_to_enter_has_that_on_its_sheet() -> None:
    quick = Backend(name="quick", device="cpu", supports=AT_ALL, compile=lambda gm: gm.forward)
    slow = replace(
        quick,
        name="slow",
        compile=waiting(0.004),
        cost=replace(keel.testing.find("eager").cost, link=Link(1e9, 1e-5), memory=1e6),
    )
    sheets = calibrate.calibrate([quick, slow], "cpu")
    assert sheets["slow"].launch > 0.0035 > sheets["quick"].launch
    assert sheets["slow"].link == Link(1e9, 1e-5) and sheets["slow"].memory == 1e6
    for sheet in sheets.values():
        assert set(sheet.flops) == {torch.float32}
        assert min(sheet.scalars, sheet.bandwidth, *sheet.weights.values()) > 0
        assert {"convolution", "pointwise convolution", "sort", "aten.exp"} <= set(sheet.weights)
        assert {"depthwise convolution backward", "aten.max_pool2d_with_indices"} <= set(sheet.weights)
        assert all(passes >= 1 for passes in sheet.passes.values()) and sheet.border >= 0


def test_files_keep_the_sheets_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "sheets.json"
    eager = keel.testing.find("eager").cost
    monkeypatch.setattr(calibrate, "calibrate", lambda backends, device, report: {b.name: eager for b in backends})
    file.write_text(json.dumps({"sheets": {"acme": {"flops": {}}}}))
    calibrate.write(file, ["eager"], "cpu", torch.get_num_threads())
    written = json.loads(file.read_text())
    assert set(written["sheets"]) == {"acme", "eager"} and set(written["machine"]) == {"processor", "threads", "torch"}
    assert keel.Cost.from_json(json.dumps(written["sheets"]["eager"])) == eager


def test_a_backend_must_take_additions(tmp_path: Path) -> None:
    lame = Backend(name="lame", device="cpu", supports=lambda call: "No.", compile=lambda gm: gm.forward)
    with pytest.raises(keel.KeelError, match="no backend takes"):
        calibrate.calibrate([lame], "cpu")


@pytest.mark.parametrize(("weight", "passes"), [(2.0, 0.5), (0.5, 3.0), (1.0, 0.0)])
def test_arithmetic_and_traffic_are_told_apart(weight: float, passes: float) -> None:
    """By a part that is much arithmetic and one that is much traffic."""
    wide, thin = (1.0, 0.1), (0.1, 0.3)
    found = calibrate._split(*((a, t, max(weight * a, t) + passes * t) for a, t in (wide, thin)))
    assert found == pytest.approx((weight, passes), abs=1e-9) or (not passes and found[1] == 0)


def test_parts_that_contradict_each_other_are_between() -> None:
    assert calibrate._split((1.0, 0.1, 4.0), (1.0, 0.5, 1.0)) == (2.0, 0.0)
    assert calibrate._split((1.0, 0.1, 4.0), None) == (4.0, 0.0)


def test_a_layout_of_its_own_is_a_border(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a convolution takes by itself, and each of several does not."""
    sheet = keel.Cost(flops={torch.float32: 1e12}, scalars=1e9, bandwidth=1e9)
    for besides, border in ((0.0, False), (5.0, True)):
        times = {
            layer.title(n): n * (layer.flops(SMALL) / 1e12 + 2 * layer.moved(SMALL) / 1e9)
            + besides * layer.moved(SMALL) / 1e9
            for layer in calibrate._layers()
            for n in (1, calibrate.ROW)
        }
        found = calibrate._convolutions(times, SMALL, sheet)
        assert found.border == (pytest.approx(5.0) if border else 0.0)


def test_a_product_takes_what_a_longer_chain_takes_more() -> None:
    times = {
        "torch.float32": 3.0,
        "more torch.float32": 5.0,
        "torch.float64": 4.0,
        "torch.float16": 5.0,
        "more torch.float16": 4.0,
    }
    assert calibrate._product(times, torch.float32, 0.5) == 1.0
    assert calibrate._product(times, torch.float64, 0.5) == pytest.approx(1.75)  # of which there is one chain
    assert calibrate._product(times, torch.float16, 0.5) == pytest.approx(0.875)


def test_what_layers_take_more_by_themselves_is_copies() -> None:
    sheet = keel.Cost(flops={torch.float32: 1e12}, scalars=1e9, bandwidth=1e9, launch=0.5)
    size = 4.0 * 8 * (SMALL.product // 2) ** 2
    apart, together = 2.0 + 0.5 + 2 * 3.0 * size / 1e9, 3 * 2.0 + 0.5 + 2 * 3.0 * size / 1e9
    assert calibrate._copies({"a layer": apart, "layers": together}, SMALL, sheet) == pytest.approx(3.0)
    assert calibrate._copies({"a layer": 2.5, "layers": 6.5}, SMALL, sheet) == 0.0
    assert calibrate._copies({}, SMALL, sheet) == 0.0
