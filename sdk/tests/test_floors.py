"""The house rules that a parser can check: imports go down, private PyTorch stays in one room, files stay small."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import keel

from . import source_files
from .source_files import KEEL, OUTSIDE, ROOT, code, imports, module_of, nodes, short, sources, tree

# Bottom up. A room is a module or a package of sdk/keel; it imports only from rooms before it, and from itself.
FLOORS = (
    "errors",
    "extras",
    "interrupts",
    "interpreter",
    "documents",
    "entry_points",
    "claims",
    "types",
    "dump",
    "fuel",
    "cache",
    "launcher",
    "quarantine",
    "symbols",
    "loops",
    "torch_adapter",
    "spec",
    "opset",
    "registration",
    "cost",
    "plugin",
    "refusals",
    "extern_limits",
    "externs",
    "graph",
    "error_budgets",
    "serialize",
    "serialise",
    "placement",
    "schedule",
    "runtime",
    "number_checks",
    "loop_level",
    "discovery",
    "pins",
    "padded_loops",
    "neutral_operands",
    "padding",
    "masked_graph",
    "specialize",
    "settings",
    "freeze",
    "saved_images",
    "selection",
    "warm_up",
    "artifact",
    "events",
    "refusal_reports",
    "stages",
    "logs",
    "progress",
    "repro_folder",
    "compiler",
    "compile",
    "dynamo",
    "batch",
    "closure",
    "coverage",
    "export",
    "packages",
    "standalone",
    "what_if",
    "reports",
    "part_groups",
    "module_tree",
    "explanation_text",
    "explanation",
    "testing",
    "explain_page",
    "tapped_parts",
    "compared_values",
    "comparison_text",
    "comparison",
    "comparison_page",
    "profile",
    "opt",
    "new",
    "named_models",
    "debug_commands",
    "minify",
    "minify_command",
    "package_commands",
    "spec_commands",
    "file_readers",
    "commands",
    "command_help",
    "command_line",
    "cli",
    "__main__",
)
CONFORMANCE = (
    "by_member",
    "devices",
    "cli_options",
    "report",
    "num_threads",
    "pytree",
    "pytest_options",
    "results",
    "workers",
    "cases",
    "oracles",
    "models",
    "programs",
    "graphs",
    "kernels",
    "levels",
    "harness",
    "witnesses",
    "repro",
    "reporting",
    "certificate",
    "suite",
    "conform_options",
    "cli",
)
# What each package imports of the others. A backend that a third party could have written imports nothing but keel.
PACKAGES: dict[str, set[str]] = {
    "keel": set(),
    "keel_eager": {"keel"},
    "keel_interp": {"keel"},
    "keel_cpp": {"keel"},
    "keel_triton": {"keel"},
    "keel_foreign": {"keel"},
    "keel_onnxruntime": {"keel"},
    "keel_opencl": {"keel"},
    "keel_pjrt": {"keel"},
    "keel_privateuse1": {"keel", "keel_cpp"},
    "keel_templates": set(),
    "keel_conformance": {"keel", "keel_foreign"},
    "keel_selftest": {"keel", "keel_foreign", "keel_conformance"},
    "keel_bench": {"keel", "keel_foreign", "keel_conformance", "keel_selftest"},
}
LINES = 600


def room_of(package: Path, module: str, name: str) -> str | None:
    """The room of the package that ``from module import name`` reaches into; None if it reaches into no package."""
    match module.split("."):
        case [root] if root == package.name:
            return name if (package / name).is_dir() or (package / f"{name}.py").exists() else "__init__"
        case [root, room, *_] if root == package.name:
            return room
    return None


def rooms(package: Path) -> list[str]:
    names = {p.stem for p in package.glob("*.py")} | {p.name for p in package.iterdir() if any(p.glob("*.py"))}
    return sorted(names - {"__init__"})


@pytest.mark.parametrize(
    ("package", "floors", "room"),
    [
        (package, floors, room)
        for package, floors in ((KEEL, FLOORS), (OUTSIDE["keel_conformance"], CONFORMANCE))
        for room in rooms(package)
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rooms_import_only_from_the_floors_below(package: Path, floors: tuple[str, ...], room: str) -> None:
    assert room in floors, f"{room} has no floor; give it its place"
    allowed = {*floors[: floors.index(room)], room}
    files = sources(package / room) if (package / room).is_dir() else [package / f"{room}.py"]
    upward = [
        f"{short(path)}:{line} imports {reached}"
        for path in files
        for line, module, name in imports(path)
        if (reached := room_of(package, module, name)) is not None and reached not in allowed
    ]
    assert not upward, "\n".join(upward)


def test_the_architecture_lists_rooms_in_the_order_of_floors() -> None:
    rows = (ROOT / "docs" / "architecture.md").read_text().partition("## Rooms")[2].partition("\n## ")[0].splitlines()
    listed = [room for row in rows if row.startswith("| `") for room in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert tuple(listed) == FLOORS


def test_the_audit_of_placements_imports_nothing_of_the_solver() -> None:
    """It checks what the solver made, so it shares no code with it; neither do the modules that it imports."""
    files = {module_of(p): p for p in sources(KEEL / "placement")}
    reached = {m for m in files if m.startswith("keel.placement.audit.")}
    assert reached
    todo = list(reached)
    while todo:
        for _, module, name in imports(files[todo.pop()]):
            new = {m for m in (module, f"{module}.{name}") if m in files} - reached
            reached |= new
            todo += new
    assert not sorted(m for m in reached if m.startswith("keel.placement.solve_placement"))


@pytest.mark.parametrize("package", ["keel", *OUTSIDE])
def test_packages_import_only_those_below(package: str) -> None:
    wrong = [
        f"{short(path)}:{line} imports {module}"
        for path in sources(KEEL if package == "keel" else OUTSIDE[package])
        for line, module, _ in imports(path)
        if (root := module.split(".")[0]) in PACKAGES and root not in {package, *PACKAGES[package]}
    ]
    assert not wrong, "\n".join(wrong)


def private_torch(path: Path) -> Iterator[str]:
    """Each use of private PyTorch in the file: an import, an attribute, or a module's name in a string."""
    for line, module, name in imports(path):
        if is_private(f"{module}.{name}"):
            yield f"{short(path)}:{line} imports {module} {name}".rstrip()
    for node in nodes(path):
        match node:
            case ast.Attribute() if (dotted := chain(node)) and is_private(dotted):
                yield f"{short(path)}:{node.lineno} uses {dotted}"
            case ast.Constant(value=str(text)) if text.replace(".", "").replace("_", "").isalnum() and is_private(text):
                yield f"{short(path)}:{node.lineno} names {text}"
            case ast.Call(func=ast.Name(id="getattr"), args=[ast.expr() as owner, ast.Constant(value=str(name)), *_]):
                if is_private(f"{chain(owner)}.{name}"):
                    yield f"{short(path)}:{node.lineno} reads {chain(owner)}.{name}"


def chain(node: ast.AST) -> str:
    """``torch.fx.Node`` for the attribute access that reads so; '' for any other expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr) if before := chain(value):
            return f"{before}.{attr}"
    return ""


def is_private(dotted: str) -> bool:
    """True of what PyTorch promises nothing about: a component with one underscore, fx.experimental, functorch.

    Operators are public whatever they are called: ``torch.ops.aten._softmax``.  So is what PyTorch tells users to
    assert with, vendors to register the module of a device with, and to package models with.
    """
    match dotted.split("."):
        case ["torch", "_check" | "_check_is_size" | "_assert_async" | "_register_device_module"]:
            return False
        case ["torch", "_inductor", "aoti_compile_and_package" | "aoti_load_package"]:
            return False
        case ["functorch", *_] | ["torch", "fx", "experimental", *_]:
            return True
        case ["torch", "ops", *_]:
            return False
        case ["torch", *rest]:
            return any(part.startswith("_") and not part.startswith("__") for part in rest)
    return False


def test_only_the_adapter_touches_private_torch() -> None:
    uses = [use for path in code() if KEEL / "torch_adapter" not in path.parents for use in private_torch(path)]
    assert not uses, "\n".join(uses)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import torch._dynamo", True),
        ("from torch import _guards", True),
        ("from torch.fx.experimental.symbolic_shapes import ShapeEnv", True),
        ("import torch\ndef f():\n    return torch._C._get_tracing_state()", True),
        ("import importlib\nimportlib.import_module('torch._inductor.config')", True),
        ("import torch\ngetattr(torch, '_inductor')", True),
        ("from functorch.compile import aot_function", True),
        ("import torch\nsoftmax = torch.ops.aten._softmax.default", False),
        ("import torch\nname = torch.__version__", False),
        ("import torch\ntorch._check(True)", False),
        ("from torch._inductor import aoti_load_package", False),
        ("import torch\ntorch._check_with(ValueError, True)", True),
        ("'''Stands in for torch._dynamo, in words.'''", False),
    ],
)
def test_private_torch_is_recognized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: bool) -> None:
    path = tmp_path / "sdk" / "keel" / "sample.py"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    monkeypatch.setattr(source_files, "ROOT", tmp_path)
    assert bool(list(private_torch(path))) is found


# Where text is run as Python, and what makes it safe.
RUNS_TEXT = {
    "sdk/keel/runtime/python_source.py": "the one module that makes Python source, of names that it made itself",
    "sdk/keel/spec/examples.py": "runs the operator set's own examples, which are part of the package, for its pages",
    "reference_backends/keel_triton/build.py": "Triton's kernels are Python source, printed from a verified kernel",
}


def runs_text(path: Path) -> list[int]:
    """The lines on which the file runs text as Python, or names what does."""
    words = {"exec", "eval"}
    return [
        node.lineno
        for node in nodes(path)
        if (isinstance(node, ast.Name) and node.id in words)
        or (isinstance(node, ast.Attribute) and node.attr in words and chain(node).startswith("builtins."))
    ]


def test_text_is_run_only_where_that_is_safe() -> None:
    files = {short(p): lines for p in sources(KEEL, ROOT / "reference_backends") if (lines := runs_text(p))}
    assert files.keys() == RUNS_TEXT.keys(), files


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("exec('x = 1')", True),
        ("f = eval", True),
        ("import builtins\nbuiltins.exec('')", True),
        ("model.eval()", False),
        ("ast.literal_eval(text)", False),
    ],
)
def test_running_text_is_recognized(tmp_path: Path, text: str, found: bool) -> None:
    path = tmp_path / "sample.py"
    path.write_text(text)
    assert bool(runs_text(path)) is found


def is_public(module: str, name: str) -> bool:
    """Whether a public room has the name; names that are only found in ``keel`` for one more release are not."""
    return module.removeprefix("keel.") in keel._ROOMS and name in import_module(module).__all__


def is_found(names: list[str], public: set[str]) -> bool:
    """Whether ``keel.NAME`` or ``keel.ROOM.NAME`` is public; of other expressions nothing is asked."""
    match names:
        case ["keel", name]:
            return name in public
        case ["keel", room, name] if room in keel._ROOMS:
            return is_public(f"keel.{room}", name)
    return True


@pytest.mark.parametrize("package", OUTSIDE)
def test_what_stands_outside_uses_only_public_names_of_keel(package: str) -> None:
    public, wrong = {*keel.__all__, *keel._MODULES}, []
    for path in sources(OUTSIDE[package]):
        wrong += [
            f"{short(path)}:{line} imports {module} {name}".rstrip()
            for line, module, name in imports(path)
            if (module.startswith("keel.") and not is_public(module, name))
            or (module == "keel" and name and name not in public)
        ]
        wrong += [
            f"{short(path)}:{node.lineno} uses {chain(node)}"
            for node in nodes(path)
            if isinstance(node, ast.Attribute) and not is_found(chain(node).split("."), public)
        ]
    assert not wrong, "\n".join(wrong)


def test_no_file_has_two_subjects() -> None:
    tests = [p for folder in ("sdk", "reference_backends", "conformance") for p in (ROOT / folder).rglob("test_*.py")]
    long = {short(p): n for p in [*code(), *tests] if (n := len(p.read_text().splitlines())) >= LINES}
    assert not long, f"{LINES} lines and more, so split them: {long}"


def test_modules_say_what_they_are_for() -> None:
    silent = [short(p) for p in code() if p.read_text().strip() and not ast.get_docstring(tree(p))]
    assert not silent, f"no module docstring: {silent}"


def test_no_module_is_a_drawer() -> None:
    drawers = [short(p) for p in code() if p.stem in {"utils", "util", "common", "helpers", "base", "misc"}]
    assert not drawers, f"names that say nothing: {drawers}"
