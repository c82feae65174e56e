"""What Keel does without the packages of its extras, and that pyproject.toml has the same extras."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import keel
from keel import Backend, Cost, KeelError, KeelWarning
from keel.cli import main
from keel.extras import EXTRAS, missing, require

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
WITHOUT = """
import sys
for name in {names}:
    sys.modules[name] = None
import keel, torch
for name in keel.__all__:
    getattr(keel, name)
{code}
assert not any(module.partition(".")[0] in {names} and sys.modules[module] for module in sys.modules)
"""
COMPILE = """
def f(x, w):
    return torch.nn.functional.gelu(x @ w).sum()
x, w = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4)
run = torch.compile(f, backend="keel", options={"backends": ["cpp", "eager"]})
run(x, w).backward()
assert torch.allclose(run(x, w), f(x, w)) and x.grad is not None
print(keel.explain(f, x, w, backends=["cpp", "eager"]).as_json()["taken"])
"""


def without(code: str, *names: str) -> subprocess.CompletedProcess[str]:
    """The code in a Python that has no such packages."""
    program = WITHOUT.format(names=names, code=code)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


@pytest.mark.slow
def test_compiling_needs_no_extra() -> None:
    run = without(COMPILE, *(package for packages in EXTRAS.values() for package in packages))
    assert run.returncode == 0, run.stderr
    assert "'cpp'" in run.stdout


@pytest.mark.slow
def test_the_command_line_without_typer() -> None:
    run = without("import keel.cli\nsys.exit(keel.cli.main(['ops']))", *EXTRAS["cli"])
    assert run.returncode == 1
    assert "KeelError[missing-extra]: The command line needs typer and rich" in run.stderr
    assert 'pip install "torch-keel[cli]"' in run.stderr and "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["selftest"], "keel selftest"),
        (["conform", "--backend", "cpp"], "keel conform"),
        (["spec", "closure"], "keel closure"),
    ],
)
def test_commands_of_the_other_packages_without_their_extra(
    command: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(EXTRAS, "conform", ("jsonschema", "pytest_that_is_missing"))
    assert main(command) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"KeelError[missing-extra]: {said} needs pytest_that_is_missing, which this Python does not have.",
        'Install the extra: pip install "torch-keel[conform]".',
    ]


@pytest.mark.slow
def test_an_explanation_as_text_without_rich() -> None:
    run = without("print(keel.explain(torch.relu, torch.ones(2), backends=['eager']))", *EXTRAS["cli"])
    assert "KeelError[missing-extra]: An explanation as text needs typer and rich" in run.stderr


def backend(name: str) -> Backend:
    return Backend(
        name=name,
        device="cpu",
        supports=lambda call: None,
        compile=lambda gm: gm.forward,
        cost=Cost(flops={torch.float32: 1e9}, scalars=1e9, bandwidth=1e9, launch=1e-6),
    )


def test_placement_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    pair = [backend("acme"), backend("zeta")]
    with pytest.warns(KeelWarning, match="placed by the order of backends"):
        assert keel.explain(torch.relu, torch.ones(2), backends=pair).taken["acme"] == 1
    assert keel.explain(torch.relu, torch.ones(2), backends=pair, placement="order").taken["acme"] == 1
    for placement in ("cost", "measured"):
        with pytest.raises(KeelError, match="Placement by cost needs scipy"):
            keel.explain(torch.relu, torch.ones(2), backends=pair, placement=placement)


def test_what_is_installed_is_required_without_a_word() -> None:
    assert not [package for extra in EXTRAS for package in missing(extra)]
    assert main(["ops"]) == 0
    require("cli", "A test")


def test_pyproject_has_the_same_extras() -> None:
    extras = PROJECT["optional-dependencies"]
    names = {name: [re.split(r"[\[<>=]", requirement)[0] for requirement in extras[name]] for name in EXTRAS}
    needed_anyway = {PROJECT["name"], "mpmath"}  # SymPy's own
    assert {name: tuple(p for p in packages if p not in needed_anyway) for name, packages in names.items()} == EXTRAS
    assert not set(PROJECT["dependencies"]) & {package for packages in EXTRAS.values() for package in packages}
