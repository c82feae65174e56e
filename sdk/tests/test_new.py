"""Rendered plugin packages: what they hold, that they install, and that they pass their own tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from keel.errors import KeelError
from keel.new import LEVELS, new

HOW = Path(__file__).parents[2] / "docs" / "how"


@pytest.mark.parametrize(("level", "lines"), [("graph", 40), ("loop", 150)])
def test_the_module_is_the_one_that_the_guide_shows(level: str, lines: int, tmp_path: Path) -> None:
    module = (new("acme", level, tmp_path / "acme") / "keel_acme" / "__init__.py").read_text()
    shown = re.findall(r"^```python\n(.*?)^```$", (HOW / f"write-a-{level}-backend.md").read_text(), re.M | re.S)[0]
    assert module == shown
    assert len(module.splitlines()) < lines


@pytest.mark.parametrize("level", LEVELS)
def test_what_a_package_holds(level: str, tmp_path: Path, golden: Callable[..., None]) -> None:
    target = new("acme", level, tmp_path / "acme")
    files = sorted(p.relative_to(target) for p in target.rglob("*") if p.is_file())
    assert list(map(str, files)) == ["README.md", "keel_acme/__init__.py", "pyproject.toml", "tests/test_smoke.py"]
    golden("\n".join(f"---- {f}\n{(target / f).read_text()}" for f in files if f.suffix in (".toml", ".md")))
    assert not re.search(r"\{\{|\}\}|\{%", "".join((target / f).read_text() for f in files))


@pytest.mark.parametrize("name", ["keel_zeta", "keel-zeta", "zeta"])
def test_a_package_is_named_after_its_backend(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert new(name) == Path("keel_zeta")
    assert 'zeta = "keel_zeta:backend"' in Path("keel_zeta/pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("Acme", "graph"),
        ("a.b", "graph"),
        ("class", "graph"),
        ("", "graph"),
        ("acme", "kernel"),
        *((name, "graph") for name in ("cpp", "keel-eager", "inductor", "foreign", "conformance", "templates")),
    ],
)
def test_what_cannot_be_rendered(name: str, level: str, tmp_path: Path) -> None:
    with pytest.raises(KeelError) as caught:
        new(name, level, tmp_path / "x")
    assert caught.value.code == "bad-option" and caught.value.do and not (tmp_path / "x").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("precious")
    with pytest.raises(KeelError, match="has files already"):
        new("acme", "graph", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.py"]


def test_folders_that_cannot_be_written_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("/nowhere")
    (tmp_path / "file").touch()
    for name, folder in (("a" * 300, None), ("acme", Path("link")), ("acme", Path("file/x")), ("acme", Path("file"))):
        with pytest.raises(KeelError) as caught:
            new(name, "graph", folder)
        assert caught.value.code == "bad-option" and caught.value.do == "Give another folder with --dir."


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_a_package_installs_and_passes_its_own_tests(level: str, tmp_path: Path) -> None:
    package, place = new(f"{level}_zeta", level, tmp_path / "package"), tmp_path / "installed"
    path = os.pathsep.join([str(place), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "KEEL_CACHE_DIR": str(tmp_path / "cache")}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=package, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--disable-pip-version-check",
        "--target",
        str(place),
        str(package),
    )
    assert "passed" in run("pytest", "-q", "-p", "no:cacheprovider")
