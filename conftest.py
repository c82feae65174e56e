"""What all tests share: the ``golden`` fixture, which compares a text with the file that holds what it should be."""

from __future__ import annotations

import difflib
import gc
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Set before torch is imported: tests run beside each other, and threads that wait by spinning cost more than they give.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("KEEL_PROGRESS", "0")
os.environ.setdefault("KEEL_GRAPH_CACHE", "0")  # tests replace pieces of the compiler, which no key of a graph names
# Tests, PyTorch and syntax trees are many objects that live long. The collector would look at each of them many times.
gc.set_threshold(100_000, 20, 20)
os.environ.setdefault("TORCH_DYNAMO_RUN_GC_AFTER_COMPILE", "0")
# A shell that starts a command in the background has it ignore Ctrl-C, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite golden files that differ from what tests give")


def pytest_collection_finish() -> None:
    """Hides what was imported and collected from the garbage collector, for it lives as long as the process.

    PyTorch times the guards of each graph that it captures, which takes longer than many a test, and only logs the
    result.
    """
    gc.freeze()
    if (guards := sys.modules.get("torch._dynamo.guards")) is not None and hasattr(guards, "profile_guard_manager"):
        guards.profile_guard_manager = lambda *args: 0.0


def pytest_sessionfinish() -> None:
    """Lets the interpreter end as it does without that."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Seeds PyTorch, so that a test draws the same numbers in each run, whichever tests ran before it."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="module")
def fresh_compiler() -> None:
    """Forgets what earlier files compiled, so that no file's result depends on which files ran before it.

    PyTorch remembers the sizes that it met by code object, and all models share that of ``nn.Sequential.forward``.
    """
    if (torch := sys.modules.get("torch")) is not None and "torch._dynamo" in sys.modules:
        torch.compiler.reset()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """``golden(text)`` compares ``text`` with ``tests/golden/<room>/<test file>/<test>.txt``; ``--bless`` rewrites it.

    A test that compares several texts names each: ``golden(text, "backward")``. ``suffix`` sets the file's ending.
    """
    path = golden_folder(Path(request.path)) / re.sub(r"[^\w.=-]+", "-", request.node.name).strip("-")

    def check(text: str, name: str = "", *, suffix: str = ".txt") -> None:
        __tracebackhide__ = True
        file = path.with_name(path.name + (f".{name}" if name else "") + suffix)
        text = text.rstrip("\n") + "\n"
        old = file.read_text() if file.exists() else None
        if old == text:
            return
        if request.config.getoption("--bless"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        elif old is None:
            pytest.fail(f"{file} is missing. Run pytest --bless and read what it writes; it would be:\n{text}")
        else:
            diff = "".join(difflib.unified_diff(old.splitlines(True), text.splitlines(True), "golden", "now"))
            pytest.fail(f"{file} differs. If the new text is right, run pytest --bless.\n{diff}")

    return check


def golden_folder(test: Path) -> Path:
    """``sdk/tests/loops/test_parser.py`` keeps its goldens in ``sdk/tests/golden/loops/test_parser``."""
    tests = next(folder for folder in test.parents if folder.name == "tests")
    return tests / "golden" / test.relative_to(tests).with_suffix("")
