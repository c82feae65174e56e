"""The command line: what each command prints, and how it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import keel.commands
import keel.spec_commands
from keel import Backend, KeelError, LoopTarget, Rule, Support, loop_backend
from keel.cli import main
from keel.command_line import COMMANDS
from keel.discovery import Discovery
from keel.entry_points import Carried
from keel.spec import lock as locks

HERE = sys.modules["keel.commands"]
ACME = Backend(name="acme", device="cpu", supports=Support((Rule(ops=("aten.mm",)),)), compile=lambda gm: gm.forward)
REST = Backend(name="rest", device="*", supports=lambda call: None, compile=lambda gm: gm.forward, last_resort=True)
LOOPS = loop_backend(
    LoopTarget(
        name="lab",
        device="cpu",
        dtypes={torch.float32: "float"},
        reductions={},
        scalars={"add": "", "mul": ""},
        render=lambda k: f"// {k.name}",
        build=list,
    )
)
KERNEL = """kernel k(in0: f32[s0]) -> (out0: f32[s0]) where s0:
  parallel i0 < s0:
    %0 = load in0[i0]
    %1 = add %0 %0
    store out0[i0] %1
"""
Out = Callable[..., str]


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Out:
    """``out(*arguments, status=0)`` runs ``keel`` and returns what it printed, errors after the rest."""
    monkeypatch.setenv("COLUMNS", "120")
    torch.compiler.reset()

    def run(*arguments: str, status: int = 0) -> str:
        assert main(arguments) == status
        printed = capsys.readouterr()
        return "\n".join(line.rstrip() for line in (printed.out + printed.err).splitlines())

    return run


def test_help_lists_all_commands(out: Out) -> None:
    text = out("--help")
    assert all(command in text for command in (*COMMANDS, "bench", "conform"))


def test_help_says_of_commands_what_they_say_themselves() -> None:
    said = {
        str(c.name or c.callback.__name__): " ".join(str(c.callback.__doc__).partition("\n\n")[0].split())
        for c in keel.commands.app.registered_commands
        if c.callback
    }
    assert {**said, "spec": keel.spec_commands.app.info.help} == COMMANDS


def test_backends(out: Out, monkeypatch: pytest.MonkeyPatch, golden: Callable[..., None]) -> None:
    problem = KeelError("not-here", "backend 'sick' cannot run on this machine.", {"sick": "No card."}, do="Drop it.")
    taken = KeelError("broken-plugin", "backend 'acme' of other cannot be used: the name belongs to keel-acme.")
    found = Discovery(
        {"acme": ACME, "lab": LOOPS, "rest": REST},
        {"sick": problem, "acme of other": taken},
        {"lab": ["the current folder", "signal handlers"]},
        {"odd": KeelError("broken-plugin", "the metadata of odd is damaged.")},
    )
    monkeypatch.setattr(HERE, "survey", lambda **_: found)
    points = {
        name: [Carried(name, f"keel_{name}:backend", "keel.backends", f"keel-{name}")]
        for name in ("acme", "sick", "lab", "rest")
    }
    points["acme"].append(Carried("acme", "other:backend", "keel.backends", "other"))
    monkeypatch.setattr(HERE, "installed", lambda: points)
    golden(out("backends"))
    rows = json.loads(out("backends", "--json"))
    assert [(r["name"], r["level"], r["usable"]) for r in rows] == [
        ("acme", "graph", True),
        ("acme", None, False),
        ("lab", "loop", True),
        ("rest", "last resort", True),
        ("sick", None, False),
        ("", None, False),
    ]
    assert rows[4]["problem"].startswith("KeelError[not-here]") and "belongs to" in rows[1]["problem"]
    assert rows[2]["notes"] == ["the current folder", "signal handlers"]


def test_the_installed_backends_are_listed(out: Out) -> None:
    rows = {r["name"]: r for r in json.loads(out("backends", "--json"))}
    assert rows["eager"]["usable"] and rows["eager"]["package"].startswith("torch-keel ")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "sample_model.py").write_text(
        "import torch\n\n\ndef make():\n    return (lambda x, n=1: (x @ x).relu() * n), (torch.ones(2, 2),)\n\n\n"
        "def more():\n    return *make(), {'n': 2}\n\n\ndef wrong():\n    return 7\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "sample_model", raising=False)
    return "sample_model"


def test_explain(out: Out, module: str, golden: Callable[..., None]) -> None:
    golden(out("explain", f"{module}:make", "--backends", "eager"))
    data = json.loads(out("explain", f"{module}:more", "--backends", "eager", "--json"))
    assert data["taken"] == {"eager": 3} and data["backends"] == ["eager"]


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
def test_a_model_is_packaged_and_inspected(out: Out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sample_network.py").write_text(
        "import torch\n\n\ndef make():\n    return torch.nn.Linear(2, 2), (torch.ones(3, 2),)\n"
    )
    monkeypatch.chdir(tmp_path)
    text = out("package", "sample_network:make", "-o", "a.keel", "--backends", "cpp", "--target", "cpp=x86-64-v2")
    assert text.startswith("a.keel is a package")
    data = json.loads(out("inspect", "a.keel", "--check", "--json"))
    assert data["variants"][0]["name"] == "cpp=x86-64-v2" and [w["name"] for w in data["weights"]] == ["weight", "bias"]
    assert "2 tensors of 24 bytes, float32" in out("inspect", "a.keel")
    (tmp_path / "a.keel").write_bytes((tmp_path / "a.keel").read_bytes()[:-1])
    assert "bad-file" in out("inspect", "a.keel", status=1)


@pytest.mark.slow
def test_explain_several_models_with_what_if_and_a_page(out: Out, module: str, tmp_path: Path) -> None:
    models = [f"{module}:make", f"{module}:more"]
    options = ["--backends", "interp", "--placement", "order", "--without", "mm", "--html", str(tmp_path / "page.html")]
    found = json.loads(out("explain", *models, *options, "--json"))
    assert list(found["models"]) == models
    assert [(s["backend"], s["operator"], s["calls"]) for s in found["steps"]] == [("interp", "aten.mm.default", 2)]
    assert found["models"][models[0]]["taken"] == {"interp": 2, "eager": 1}
    text = out("explain", *models, *options)
    assert all(model in text for model in models) and "next" in text and "aten.mm.default" in text
    assert all(model in (tmp_path / "page.html").read_text() for model in models)


def test_explain_with_an_operator_given_to_a_backend(out: Out, module: str) -> None:
    asked = ["explain", f"{module}:make", "--backends", "interp"]
    assert json.loads(out(*asked, "--json"))["taken"] == {"interp": 3, "eager": 0}
    assert json.loads(out(*asked, "--pin", "mm=eager", "--json"))["taken"] == {"interp": 2, "eager": 1}
    assert "cannot be pinned to 'acme'" in out(*asked, "--pin", "mm=acme", status=1)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("sample_model:lost", "has no attribute 'lost'"),
        ("no_such_module:make", "No module named"),
        ("sample_model", "AttributeError"),
        ("sample_model:wrong", "returned int"),
    ],
)
def test_explain_of_what_cannot_be_loaded(what: str, reason: str, out: Out, module: str) -> None:
    text = out("explain", what, status=1)
    assert text.startswith("KeelError[bad-option]") and reason in text and "MODULE:FACTORY" in text


def test_explain_with_an_unknown_backend(out: Out, module: str) -> None:
    assert "no installed backend is named 'eagre'" in out("explain", f"{module}:make", "--backends", "eagre", status=1)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(HERE, "find", lambda name: {"acme": ACME, "lab": LOOPS}[name])
    (tmp_path / "k.loops").write_text(KERNEL)
    return str(tmp_path / "k.loops")


def test_opt_to_loops_and_to_source(kernel: str, out: Out) -> None:
    assert out("opt", kernel) == KERNEL.rstrip()
    assert out("opt", "--from", "loops", kernel, "--backend", "lab") == "// k"
    assert out("opt", kernel, "--backend", "lab", "--to", "loops") == KERNEL.rstrip()


def test_opt_runs_a_kernel(kernel: str, out: Out) -> None:
    text = out("opt", kernel, "--to", "interp", "--size", "s0=3")
    assert "out0" in text and "float32[3]" in text


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--to", "interp"], "sizes of unknown value: s0"),
        (["--to", "interp", "--size", "s0"], "is not a size"),
        (["--to", "source"], "Name one"),
        (["--to", "cake"], "'cake' is not known"),
        (["--from", "fx"], "'fx' is not known"),
        (["--backend", "acme"], "acme compiles graphs, not loops"),
    ],
)
def test_opt_says_what_it_misses(arguments: list[str], reason: str, kernel: str, out: Out) -> None:
    assert reason in out("opt", kernel, *arguments, status=1)


def test_opt_of_a_broken_kernel(kernel: str, out: Out) -> None:
    Path(kernel).write_text(KERNEL.replace("add", "plus"))
    assert "KeelError[bad-text]" in out("opt", kernel, status=1)
    assert "There is no file" in out("opt", kernel + "x", status=1)


def test_new(out: Out, tmp_path: Path) -> None:
    text = out("new", "zeta", "--level", "loop", "--dir", str(tmp_path / "z"))
    assert "pip install -e" in text and (tmp_path / "z" / "keel_zeta" / "__init__.py").is_file()
    assert "has files already" in out("new", "zeta", "--dir", str(tmp_path / "z"), status=1)


def test_ops(out: Out) -> None:
    assert "normalization" in out("ops") and "opset 1.0" in out("ops")
    text = out("ops", "--family", "normalization")
    assert "layer_norm" in text and "nll_loss" not in text
    page = out("ops", "layer_norm")
    family = "normalization"
    assert page.startswith(f"layer_norm (composite, {family}") and "layer_norm.C1" in page
    assert out("ops", "aten.native_layer_norm") == page
    (data,) = json.loads(out("ops", "layer_norm", "--json"))
    assert data["name"] == "layer_norm" and data["clauses"]
    assert "Did you mean layer_norm" in out("ops", "layer_nrom", status=1)
    assert "The opset has no family 'losing'" in out("ops", "--family", "losing", status=1)


def test_an_unknown_command(out: Out) -> None:
    assert "No such command 'dance'" in out("dance", status=2)


def test_names_of_a_lock_neither_steer_the_terminal_nor_mark_text_up(out: Out, tmp_path: Path) -> None:
    held = locks.lock()
    name, member = next(iter(held["members"].items()))
    members = {**held["members"], "\x1b[31m[/x]": member}
    (tmp_path / "lock.json").write_text(locks.text({**held, "members": members, "digest": locks.digest(members)}))
    text = out("spec", "diff", str(tmp_path / "lock.json"))
    assert "\\x1b[31m[/x]" in text and "It is gone." in text and "\x1b" not in text and name not in text


def test_commands_of_other_packages(out: Out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zeta_tools.py").write_text(
        "import typer\napp = typer.Typer()\n\n\n@app.callback(invoke_without_command=True)\n"
        "def run(loud: bool = False):\n    print('ZETA' if loud else 'zeta')\n    raise typer.Exit(3)\n"
    )
    info = tmp_path / "zeta_tools-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zeta-tools\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[keel.commands]\nzeta = zeta_tools:app\nbad = zeta_tools:nothing\n")
    (tmp_path / "evil.py").write_text(
        "raise SystemExit(7)\n@app.callback()\ndef run():\n    'Makes [noise], as evil[more] and [/] do.'\n"
    )
    info = tmp_path / "evil-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[keel.commands]\nbackends = evil:app\nbench = evil:app\nnoise = evil:app\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("KEEL_QUARANTINE", "0")
    assert out("zeta", "--loud", status=3) == "ZETA"
    assert "cannot be used: zeta_tools:nothing cannot be imported" in out("bad", status=1)
    assert "SystemExit: 7" in out("noise", status=1)
    assert "eager" in out("backends")
    text = out("--help")
    assert "A command of zeta-tools; its --help says more." in text and "noise" in text and "SystemExit" not in text
    assert "Makes [noise], as evil[more] and [/] do." in text
    for line in (
        "command 'bench' of evil cannot be used: the name belongs to torch-keel",
        "command 'backends' of evil cannot be used: Keel has one of that name",
    ):
        assert line in text


@pytest.mark.slow
@pytest.mark.parametrize("asked", [("backends",), ("spec", "overloads")], ids=" ".join)
def test_what_keeps_pytorch_from_being_imported_is_named(asked: tuple[str, ...], tmp_path: Path) -> None:
    info = tmp_path / "odd-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_bytes(b"[other]\nlone\xff\n")
    ran = subprocess.run(
        [sys.executable, "-m", "keel", *asked],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"},
    )
    assert ran.returncode == 1 and "Traceback" not in ran.stderr
    assert "PyTorch cannot be imported" in ran.stderr and "odd: Its entry_points.txt cannot be read" in ran.stderr
