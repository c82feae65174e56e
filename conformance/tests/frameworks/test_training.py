"""The training loops of the page run as they stand, and their losses are those without Keel."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from keel_conformance.models import allow_torchvision

from .snippets import snippets

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of the frameworks
WITHOUT = {
    'model = torch.compile(model, backend="keel")\n': "",
    'model.compile(backend="keel")\n': "",
    '@torch.compile(backend="keel")\n': "",
}
"""What is left out of a snippet to train without Keel."""
Graphs = Callable[[], list[str]]
TRAINING = "forward", "backward"
ACCELERATOR = "accelerator = Accelerator()\n"


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graphs:
    """Which graphs Keel has compiled so far, in their order, and by which backends unless by cpp alone."""
    monkeypatch.setenv("KEEL_DUMP", str(tmp_path / "dump"))

    def graphs() -> list[str]:
        return [described(dump) for dump in sorted(tmp_path.glob("dump/*"))]

    def described(dump: Path) -> str:
        parts = json.loads((dump / "03-placed.json").read_text())["parts"]
        owners, kind = sorted({part["owner"] for part in parts}), dump.name.partition("-")[2]
        return kind if owners == ["cpp"] else f"{kind} by {', '.join(owners)}"

    return graphs


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    # Not by its environment variable, which CUDA reads once in a process.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    allow_torchvision()
    torch.compiler.reset()
    with torch._dynamo.config.patch(compiled_autograd=False):
        yield


def needs(*packages: str) -> None:
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is not installed; make dev installs it")


def losses(code: str) -> list[float]:
    """What the code leaves in ``losses``, of a few steps."""
    names: dict[str, Any] = {}
    torch.manual_seed(0)
    exec(compile(code, "frameworks.md", "exec"), names)
    if (state := sys.modules.get("accelerate.state")) is not None:
        state.AcceleratorState._reset_state(True)  # the first Accelerator of a process decides what all others compile
    found: list[float] = names["losses"]
    return found


def eagerly(code: str) -> str:
    """The code without Keel."""
    [line] = [line for line in WITHOUT if line in code]
    return code.replace(line, WITHOUT[line])


def trains_like_eager(code: str, eager: str, compiled: Graphs, *graphs: str) -> None:
    expected = losses(eager)
    assert len(expected) == 4 and not compiled()
    assert losses(code) == pytest.approx(expected, rel=1e-4)
    assert compiled() == list(graphs)


def test_accelerate(compiled: Graphs) -> None:
    needs("accelerate")
    code, _ = snippets("## Accelerate")
    trains_like_eager(code, eagerly(code), compiled, *TRAINING)


def test_accelerate_compiles(compiled: Graphs) -> None:
    needs("accelerate")
    loop, plugin = snippets("## Accelerate")
    trains_like_eager(eagerly(loop).replace(ACCELERATOR, plugin), eagerly(loop), compiled, *TRAINING)


STACK = """
class Stack(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(4))
        self.last = torch.nn.Linear(8, 4)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.last(x)


model = Stack()
"""


def test_accelerate_compiles_by_regions(compiled: Graphs) -> None:
    """The layer that stands first and needs no gradient of its input, those that follow it, and the last one."""
    needs("accelerate")
    loop, plugin = snippets("## Accelerate")
    [line] = [line for line in loop.splitlines() if line.startswith("model = torch.nn.Sequential")]
    eager = eagerly(loop).replace(line, STACK)
    wanted = losses(eager)
    plugin = plugin.replace("options=", "use_regional_compilation=True, options=")
    assert losses(eager.replace(ACCELERATOR, plugin)) == pytest.approx(wanted, rel=1e-4)
    assert Counter(compiled()) == dict.fromkeys(TRAINING, 3)


def test_accelerate_refuses_the_name() -> None:
    """If it takes the name one day, the page can be shorter."""
    needs("accelerate")
    from accelerate.utils import TorchDynamoPlugin

    with pytest.raises(ValueError, match="'KEEL' is not a valid DynamoBackend"):
        TorchDynamoPlugin(backend="keel")  # type: ignore[arg-type]


def test_transformers(compiled: Graphs) -> None:
    needs("accelerate", "transformers")
    [code] = snippets("## Trainer of Transformers")
    trains_like_eager(code, eagerly(code), compiled, *TRAINING)


def test_lightning(compiled: Graphs) -> None:
    needs("pytorch_lightning")
    [code] = snippets("## Lightning")
    trains_like_eager(code, eagerly(code), compiled, *TRAINING)


def test_compiled_autograd(compiled: Graphs) -> None:
    """Forward, the whole backward, and the step of the optimizer, which accumulates no gradients."""
    [code] = snippets("## Compiled autograd")
    trains_like_eager(code, eagerly(code), compiled, "forward", "inference", "inference")


def test_flex_attention(compiled: Graphs) -> None:
    [code] = snippets("## flex_attention")
    attended = [losses(text + "losses = attend(q, k, v, torch.ones(4))\n") for text in (code, eagerly(code))]
    torch.testing.assert_close(*attended)
    assert compiled() == ["inference by cpp, eager"]
