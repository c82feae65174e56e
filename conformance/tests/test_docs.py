"""The documentation holds: links lead somewhere, and the code on its pages runs and is as short as it says."""

from __future__ import annotations

import builtins
import os
import pkgutil
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import keel
import keel_onnxruntime
import keel_opencl

ROOT = Path(__file__).parents[2]
HOW = ROOT / "docs" / "how"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NO_OBJECTS = {"keel.backends", "keel.serialise"}
"""Dotted names that are not objects of Python: a group of entry points, and a room's old name."""


def code(page: Path) -> str:
    """The first Python block of the page."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)[0]


def module(page: Path) -> Any:
    """The page's code, run."""
    names: dict[str, Any] = {"__name__": page.stem}
    exec(compile(code(page), str(page), "exec"), names)
    return SimpleNamespace(**names)


def spied(backend: keel.Backend) -> tuple[keel.Backend, list[int]]:
    """The backend, and a list that grows by the number of calls of each part it compiles."""
    parts: list[int] = []

    def compile(gm: torch.fx.GraphModule) -> Callable[..., Any]:
        parts.append(sum(node.op == "call_function" for node in gm.graph.nodes))
        return backend.compile(gm)

    return replace(backend, compile=compile), parts


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)", prose)
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_that_pages_name_are_there(page: Path) -> None:
    """A path begins at the root of the repository; one that begins with ``run/`` is in the folder of a run."""
    named = re.findall(r"`([\w.-]+(?:/[\w.-]+)+/?|\w+\.py)`", page.read_text())
    paths = {name for name in named if not name.startswith("run/") and not name.endswith("...")}
    assert not {path for path in paths if not (ROOT / path).exists()}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_names_of_keel_that_pages_use_are_there(page: Path) -> None:
    """A deprecated name warns, so it fails too."""
    named = set(re.findall(r"`(keel(?:\.\w+)+)(?:\([^`]*\))?`", page.read_text()))
    for name in sorted(named - NO_OBJECTS):
        pkgutil.resolve_name(name)


def test_rows_of_where_is_what_name_what_their_files_define() -> None:
    """Checked are names with a dot, an underscore or a capital letter, unless they are PyTorch's or Python's."""
    missing = set()
    for row in (ROOT / "docs" / "maintainers" / "where-is-what.md").read_text().splitlines():
        named = re.findall(r"`([^`]+)`", row) if row.startswith("|") else []
        paths = [ROOT / name for name in named if "/" in name and (ROOT / name).exists()]
        files = {file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])}
        text = "\n".join(file.read_text() for file in files)
        for name in named:
            identifier = re.fullmatch(r"(?!aten\.|torch\.)[A-Za-z_][\w.]*[_.A-Z][\w.]*|[A-Z]\w*", name)
            last = name.split(".")[-1]
            defined = re.search(rf'(?m)(?:def|class) {last}\b|^\s*{last}\b.*[=:]|"{last}"', text)
            if identifier and not defined and not hasattr(builtins, name):
                missing.add(name)
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_lines_fit(page: Path) -> None:
    long = [line for line in page.read_text().splitlines() if len(line) > 120 and not line.startswith("|")]
    assert not long


def test_the_readme_fits_one_screen_and_runs() -> None:
    page = ROOT / "README.md"
    assert len(page.read_text().splitlines()) <= 50
    names: dict[str, Any] = {}
    exec(code(page), names)
    assert all(p.grad is not None for p in names["model"].parameters())


def test_make_lists_what_the_readme_names() -> None:
    listed = subprocess.run(["make", "-s", "-C", str(ROOT)], capture_output=True, text=True, check=True).stdout
    for target in re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert re.search(rf"^  {target} ", listed, re.MULTILINE)


def test_commands_that_the_readme_names_run(tmp_path: Path) -> None:
    named = re.findall(r"`(keel [^`]*)`", (ROOT / "README.md").read_text())
    assert "keel new keel_acme --level loop" in named
    for command in named:
        word, *arguments = command.split()[1:]
        line = [*arguments, "--help"] if any(a.isupper() for a in arguments) or not arguments else arguments
        done = subprocess.run(
            [sys.executable, "-m", "keel.cli", word, *line], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "keel_acme" / "pyproject.toml").is_file()


def test_what_the_readme_installs_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [(name, extra)] = re.findall(r'^pip install "([\w-]+)\[(\w+)\]"$', (ROOT / "README.md").read_text(), re.MULTILINE)
    assert name == project["name"] and extra in project["optional-dependencies"]


@pytest.mark.parametrize(("name", "limit"), [("write-a-graph-backend", 40), ("write-a-loop-backend", 150)])
def test_plugins_are_as_short_as_said(name: str, limit: int) -> None:
    assert len(code(HOW / f"{name}.md").splitlines()) < limit


def test_gates_are_claimed(capsys: pytest.CaptureFixture[str]) -> None:
    page = module(HOW / "claim-calls.md")
    text = " ".join(capsys.readouterr().out.split())
    assert "as one kernel each: gate (1)" in text and "acme has a sigmoid in gates only." in text
    torch.compiler.reset()
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    run = keel.compile(page.gated, backends=[page.backend, "eager"], placement="order")
    torch.testing.assert_close(run(x, w), page.gated(x, w))


def test_the_graph_backend_multiplies_matrices() -> None:
    backend, parts = spied(module(HOW / "write-a-graph-backend.md").backend)
    torch.manual_seed(0)
    x, w = torch.randn(5, 7), torch.randn(7, 3, requires_grad=True)

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w).sum()

    compiled = keel.compile(fn, backends=[backend, "eager"], strict=True)
    torch.testing.assert_close(compiled(x, w), fn(x, w))
    (found,), (wanted,) = (torch.autograd.grad(f(x, w), w) for f in (compiled, fn))
    torch.testing.assert_close(found, wanted)
    assert parts == [1, 1]  # a product forward, a product backward


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.usefixtures("own_cache")
def test_the_loop_backend_compiles_all_of_a_small_model() -> None:
    assert shutil.which("cc"), "the page's backend needs a C compiler, and so do the tests"
    backend, parts = spied(module(HOW / "write-a-loop-backend.md").backend)
    torch.manual_seed(0)
    x, w, b = torch.randn(5, 6, requires_grad=True), torch.randn(6, 8), torch.randn(8)

    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.softmax(F.gelu(F.layer_norm(x @ w, (8,), b, b)), -1)
        return y.argmax(-1), y.cumsum(0), y.var(0), F.max_pool1d(y, 3, 2, 1), torch.where(y > 0.1, y, -y).sum()

    compiled = keel.compile(fn, backends=[backend], strict=True)
    results, wanted = compiled(x, w, b), fn(x, w, b)
    torch.testing.assert_close(results, wanted)
    grads = [torch.autograd.grad(r[-1], x)[0] for r in (results, wanted)]
    torch.testing.assert_close(*grads)
    assert len(parts) == 2 and min(parts) > 5


@pytest.mark.usefixtures("own_cache")
def test_a_loop_backend_with_changing_sizes() -> None:
    backend = module(HOW / "write-a-loop-backend.md").backend
    compiled = keel.compile(lambda x: (x - x.mean(-1, keepdim=True)).exp().flip(0), backends=[backend], strict=True)
    for rows in (3, 5, 8, 1, 0):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), (x - x.mean(-1, keepdim=True)).exp().flip(0))


@pytest.mark.usefixtures("own_cache")
def test_a_loop_backend_with_machine_code_and_one_with_its_own_memory() -> None:
    page = HOW / "write-a-loop-backend.md"
    names: dict[str, Any] = {"__name__": page.stem}
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, str(page), "exec"), names)
    compiled = keel.compile(lambda x: (x * 2).sum(-1), backends=[names["backend"]], strict=True)
    apart = keel.compile(lambda x: (x * 2).sum(-1), backends=[names["apart"]], strict=True)
    x = torch.randn(5, 4)
    torch.testing.assert_close(apart(x), (x * 2).sum(-1))
    flags = {*re.split(r"\s+", Path("/proc/cpuinfo").read_text())}
    if missing := {*names["MACHINES"]["acme2"][1]} - flags:
        pytest.skip(f"The CPU lacks {missing}.")
    torch.testing.assert_close(compiled(x), (x * 2).sum(-1))
    with pytest.raises(keel.KeelError, match=r"bad-option.*cannot compile for 'acme9'"):
        names["compile"]([], "acme9")


@pytest.mark.slow  # starts Python five times
def test_a_failing_model_is_reduced(tmp_path: Path) -> None:
    (tmp_path / "network.py").write_text(code(HOW / "my-model-crashes.md"))
    command = [sys.executable, "-m", "keel.cli", "minify", "network:model", "--backends", "network:acme"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "stage: plugin" in done.stdout and "exits with 1" in done.stdout, done
    assert "aten.native_layer_norm" in (tmp_path / "minified" / "report.md").read_text()


def test_fuel_finds_the_fusion() -> None:
    find = module(HOW / "find-a-wrong-kernel.md").first_bad_fusion
    x = torch.randn(4, 4)
    assert find(lambda x: x.exp().sum(-1).log(), (x,), ["cpp", "eager"], most=4) is None


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
@pytest.mark.usefixtures("own_cache")
def test_the_wrong_operator_of_a_model_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    [wrong] = module(HOW / "my-model-is-wrong.md").found.wrong
    assert (wrong.operator, wrong.module) == ("aten.gelu.default", "1")
    assert capsys.readouterr().out.startswith("gelu is wrong in 1: ")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_what_makes_a_model_slow_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "network.py").write_text(code(HOW / "my-model-is-slow.md"))
    found = runpy.run_path(str(tmp_path / "network.py"))["found"].facts
    lines = [found.breaks[0].line, found.recompilations[0].line, found.fallbacks[0].lines[0]]
    assert [line.partition("   ")[2] for line in lines] == [
        'print(end="")  # a graph ends here',
        "self.calls = min(self.calls + 1, 2)  # a number that changes: it is compiled again",
        "return self.down(torch.erf(y))  # the vendor's compiler does not take erf",
    ]
    assert "What would help most" in capsys.readouterr().out


def test_a_graph_is_saved_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page, x = module(HOW / "save-a-graph.md"), torch.randn(5, 4)
    want = page.program.module()(x)
    torch.testing.assert_close(page.loaded(x), want)
    torch.testing.assert_close(page.compiled(x), want)


def test_compiled_kernels_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    compiler = tmp_path / "acmecc"
    compiler.write_text(f"#!/bin/sh\ncase $1 in -print*) exit 1;; esac\necho run >> {tmp_path}/runs\necho made; cat\n")
    compiler.chmod(0o755)
    machine_code = module(HOW / "keep-compiled-kernels.md").machine_code
    assert machine_code("text", ["-O2"]) == machine_code("text", ["-O2"]) == b"made\ntext"
    assert machine_code("text", ["-O3"]) == b"made\ntext"
    assert (tmp_path / "runs").read_text() == "run\n" * 2


def test_weights_are_prepared_once(tmp_path: Path) -> None:
    page = HOW / "prepare-constants.md"
    script = tmp_path / "acme.py"
    script.write_text(code(page))
    printed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    assert f"```\n{printed}```" in page.read_text()


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
def test_a_compiler_that_exists_runs_a_model() -> None:
    if (obstacle := keel_onnxruntime.backend.probe()) is not None:
        pytest.skip(obstacle)
    torch.manual_seed(0)
    page = module(HOW / "wrap-a-compiler.md")
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(page.compiled(x), page.model(x), rtol=1e-4, atol=1e-5)


def test_opencl_runs_a_model() -> None:
    if why := keel_opencl.target.probe():
        pytest.skip(why)
    module(HOW / "run-on-opencl.md")


def test_every_error_code_has_its_page() -> None:
    codes = set(re.findall(r'^    "([a-z-]+)",', (ROOT / "sdk" / "keel" / "errors.py").read_text(), re.MULTILINE))
    pages = {p.stem for p in (ROOT / "docs" / "errors").glob("*.md")} - {"README"}
    assert codes == pages and len(codes) >= 15


def test_the_tests_run_where_the_code_is() -> None:
    assert Path(keel.__file__).is_relative_to(ROOT), f"tests of {ROOT} ran {os.path.dirname(keel.__file__)}"
