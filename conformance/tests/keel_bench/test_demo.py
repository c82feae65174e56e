"""The demo's own pieces; the demo as a whole is ``make demo``."""

from __future__ import annotations

import io
import os
import re
import sys

import pytest
import torch
from rich.console import Console

import keel
from keel_bench import demo, demo_models
from keel_bench.demo_models import Shown


def text(renderable: object) -> str:
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(renderable)
    return console.export_text()


def test_placement_and_reasons_are_shown() -> None:
    picky = keel.Backend(
        name="picky", device="cpu", supports=lambda call: f"picky has no [{call.name}].", compile=lambda gm: gm.forward
    )
    explanation = keel.explain(lambda x: x.exp() + 1, torch.ones(3), backends=[picky, "eager"])
    assert re.search(r"inference\s+│\s+-\s+│\s+2 in 1", text(demo.parts(explanation)))
    shown = text(demo.reasons(explanation))
    assert "picky has no [aten.exp.default]." in shown
    assert "test_demo.py:" in shown


def test_errors_are_shown_for_both_modes() -> None:
    table = demo.errors(Shown("an encoder", demo_models.encoder), on=("eager",), scale="tiny")
    assert [str(cell) for cell in table.columns[0].cells] == ["inference", "training"]
    assert [str(cell) for cell in table.columns[-1].cells] == ["yes", "yes"]


def test_a_command_that_fails_is_shown_with_what_it_said() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)failed:\nno such plugin"):
        demo.call([sys.executable, "-c", "print('no such plugin'); raise SystemExit(3)"], dict(os.environ))
    assert demo.call([sys.executable, "-c", "print(7)"], dict(os.environ)) == "7\n"


def test_models_without_their_packages_are_of_torch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_models, "find_spec", lambda package: None if package == "timm" else object())
    shown, sentences = demo_models.models()
    assert [model.title for model in shown] == ["BERT (Hugging Face, two layers)", "a residual network"]
    assert sentences == ["ResNet-18 (timm) needs timm, so the demo shows a residual network in its place."]
    table = demo.errors(shown[1], on=("eager",), scale="tiny")
    assert [str(cell) for cell in table.columns[-1].cells] == ["yes", "yes"]
