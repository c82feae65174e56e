"""What importing Keel loads, which is next to nothing; and that the public names are found all the same."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import keel

SOURCE = Path(str(keel.__file__))
HEAVY = ("torch", "sympy", "numpy", "scipy", "jinja2")
LOADED = "print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def loaded_after(code: str) -> set[str]:
    """The top-level modules that a new process has after ``code``."""
    run = subprocess.run([sys.executable, "-c", f"import sys\n{code}\n{LOADED}"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.splitlines()[-1].split())


def test_importing_keel_loads_no_other_package() -> None:
    assert not loaded_after("import keel") & {*HEAVY, "typer", "click", "rich"}


def test_importing_keel_loads_no_room_but_the_way_in() -> None:
    code = "import keel\nprint(*sorted(m for m in sys.modules if m.startswith('keel')))"
    run = subprocess.run([sys.executable, "-c", f"import sys\n{code}"], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["keel", "keel.compile"]


@pytest.mark.slow
def test_heavy_modules_are_seen_where_they_are_loaded() -> None:
    assert {"torch", "sympy"} <= loaded_after("import keel\nkeel.Backend")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], [], ["dance"]])
def test_help_loads_no_command(arguments: list[str]) -> None:
    code = f"import keel.cli\nkeel.cli.main({arguments})"
    assert not loaded_after(code) & {*HEAVY, "keel_conformance"}


def type_checked() -> dict[str, str]:
    """Returns what type checkers see: each name, and the module that it is imported from."""
    [block] = [node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If)]
    return {
        alias.name: str(node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def test_type_checkers_are_told_what_the_table_says() -> None:
    assert type_checked() == {name: room for room, names in keel._NAMES.items() for name in names}


def test_the_table_holds_all_public_names() -> None:
    assert {name for names in keel._NAMES.values() for name in names} | {"compile"} == set(keel.__all__)


@pytest.mark.parametrize("name", [*keel.__all__, *keel._MODULES])
def test_a_public_name_is_found(name: str) -> None:
    assert name == "compile" or keel.__getattr__(name) is getattr(keel, name)


def test_a_name_that_moved_is_what_its_room_has() -> None:
    for room, names in {**keel._MOVED, "keel.loops": keel.loops.__all__}.items():
        assert all(getattr(keel, name) is getattr(import_module(room), name) for name in names)


@pytest.mark.parametrize("room", ["cache", "cost", "loops", "opset", "serialise", "serialize", "testing"])
def test_no_submodule_takes_the_place_of_a_rooms_name(room: str) -> None:
    """Importing ``keel.loops.verify`` sets ``keel.loops.verify`` once: a module loaded later would hide the name."""
    module = import_module(f"keel.{room}")
    files = {path.stem for folder in getattr(module, "__path__", ()) for path in Path(folder).iterdir()}
    names = files & set(module.__all__)
    assert all(getattr(module, name).__module__ == f"keel.{room}.{name}" for name in names)


def test_few_names_are_needed_first() -> None:
    assert len(keel.__all__) <= 27


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="module 'keel' has no attribute 'compil'"):
        keel.compil  # noqa: B018


def test_compile_is_the_function_also_after_its_module_was_imported() -> None:
    code = "import importlib, keel\nimportlib.import_module('keel.compile')\nassert callable(keel.compile)"
    assert "torch" not in loaded_after(code)
    assert "torch" not in loaded_after(f"import keel.compile\n{code}")
