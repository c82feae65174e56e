"""What a file did when it was read: whether it was taken, refused in a clear error, slow, or ran something."""

from __future__ import annotations

import ast
import builtins
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any, Literal

from keel import KeelError

LIMIT = 1.0
"""Seconds of the processor that a file may take."""
GIVEN_UP = 20
"""Seconds after which reading is broken off."""
Ending = Literal["taken", "refused", "raw error"]
LAZY = ("torch", "sympy", "mpmath", "numpy", "keel", "encodings")
"""Packages of which more may be imported at any time, by themselves."""
_EVENTS = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.putenv",
    "os.chmod",
    "subprocess.",
    "socket.",
    "ctypes.",
    "shutil.",
    "pickle.find_class",
    "code.",
    "urllib.",
    "webbrowser.",
    "pty.",
    "sys.addaudithook",
    "builtins.input",
    "builtins.breakpoint",
)
_WRITTEN = ("<eval_with_key>", "<keel ")
"""How the files begin of the source that PyTorch and Keel write for a graph, which ``unexpected`` has looked at."""
_CALLED = frozenset(
    {
        "torch",
        "fx_pytree",
        "pytree",
        "operator",
        "_operator",
        "math",
        "device",
        "slice",
        "float",
        "int",
        "bool",
        "abs",
        "min",
        "max",
        "pow",
        "round",
        "inf",
        "nan",
        "self",
        "builtins",
    }
)


@dataclass(frozen=True)
class ReadOutcome:
    """``error`` is what was raised, ``executed`` what the file made the process run, ``seconds`` processor time."""

    ending: Ending
    seconds: float
    error: str = ""
    executed: tuple[str, ...] = ()

    @property
    def bad(self) -> bool:
        return self.ending == "raw error" or self.seconds > LIMIT or bool(self.executed)


@dataclass
class Watch:
    """Notes what this process runs while a file is read.  There is one in a process, because a hook is for ever."""

    file: Path
    on: bool = False
    ran: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        sys.addaudithook(self._on_audit_event)
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, *_: Any) -> None:
        """Notes what is to be imported, whether there is such a module or not, and leaves it to others."""
        if self.on and name.partition(".")[0] not in LAZY:
            self.ran.append(f"import {name}")

    def read(
        self, load: Callable[[Path], Any], data: bytes, lay_out: Callable[[Path], Path] = lambda path: path
    ) -> ReadOutcome:
        """Has ``load`` read what ``lay_out`` makes of a file of these bytes."""
        self.file.write_bytes(data)
        place = lay_out(self.file)
        self.ran, message, ending = [], "", "taken"
        begin = time.process_time()
        self.on = True
        try:
            with _time_limit():
                load(place)
        except KeelError as e:
            ending, message = "refused", str(e)
        except Exception as e:
            ending, message = "raw error", f"{type(e).__name__}: {e}"[:500]
        finally:
            self.on = False
        return ReadOutcome(ending, time.process_time() - begin, message, tuple(self.ran[:10]))  # type: ignore[arg-type]

    def _on_audit_event(self, event: str, args: tuple[Any, ...]) -> None:
        if self.on and event not in ("object.__getattr__", "sys._getframe"):
            self.on = False  # what is done here is not the file's
            try:
                self._note(event, args)
            finally:
                self.on = True

    def _note(self, event: str, args: tuple[Any, ...]) -> None:
        match event, args:
            case "open", (path, str(mode), *_) if set(mode) & set("wax+") and Path(str(path)) != self.file:
                self.ran.append(f"open {path} {mode}")
            case "compile", (_, "<unknown>"):  # a text that is parsed: running it would be another event
                pass
            case "compile", (_, name) if _imports_more(str(name)):  # there was no bytecode of the module yet
                pass
            case "compile", (source, name):
                of_keel = str(name).startswith(_WRITTEN[1])
                if (odd := unexpected_of_keel(source) if of_keel else unexpected(source)) is not None:
                    self.ran.append(f"compile {name}: {odd}")
            case "exec", (CodeType() as code,) if not _of_module(code) and not code.co_filename.startswith(_WRITTEN):
                self.ran.append(f"exec {code.co_filename}")
            case "ctypes.dlopen", ("libnvidia-ml.so.1",):  # PyTorch asks the driver whether there is a GPU
                pass
            case ("ctypes.dlopen", (None,)) | ("ctypes.dlsym", (_, "gnu_get_libc_version" | "mallopt")):
                pass  # Keel has malloc keep the memory that large graphs free
            case _ if event.startswith(_EVENTS):
                self.ran.append(f"{event} {args}"[:200])


def _of_module(code: CodeType) -> bool:
    return code.co_name == "<module>" and _imports_more(code.co_filename)


def _imports_more(file: str) -> bool:
    """Whether a file is of one of the packages that import more of themselves."""
    return file.endswith(".py") and any(part in LAZY for part in Path(file).parts)


def unexpected(source: Any) -> str | None:
    """What of a source is not what PyTorch writes for a graph: a function ``forward`` whose arguments have no defaults,
    and which calls nothing but what its names lead to from PyTorch's own modules.
    """
    if source is None:  # a tree that was parsed, which nothing runs
        return None
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        return type(e).__name__
    match tree.body:
        case [ast.FunctionDef(name="forward", args=args, decorator_list=[])] if not (
            args.defaults or args.kw_defaults or any(a.annotation for a in args.args)
        ):
            pass
        case []:
            return None
        case _:
            return "It is not a function named forward."
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Lambda | ast.ClassDef | ast.AsyncFunctionDef):
            return type(node).__name__
        if isinstance(node, ast.Call) and _root(node.func) not in _CALLED:
            return f"It calls {ast.unparse(node.func)[:80]}."
        if isinstance(node, ast.Attribute) and node.attr.startswith("__") and "shift" not in node.attr:
            return f"It reads {node.attr}."
    return None


def unexpected_of_keel(source: Any) -> str | None:
    """What of a source is not what Keel writes for a compiled program: functions that call nothing but objects that
    were bound to names, and methods of values.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Lambda() | ast.ClassDef() | ast.AsyncFunctionDef():
                return type(node).__name__
            case ast.Name(id=name) if name == "keel_canary" or (hasattr(builtins, name) and name not in _BUILTINS):
                return f"It names {name}."
            case ast.Attribute(attr=name) if name.startswith("_"):
                return f"It reads {name}."
            case ast.Constant(value=str()):
                return "It has a text."
    return None


_BUILTINS = ("Exception", "BaseException")


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


class _Late(BaseException):
    """Not an error that a loader could take for one of the file's."""


@contextmanager
def _time_limit() -> Iterator[None]:
    """Raises TimeoutError after ``GIVEN_UP`` seconds of the processor."""

    def late(*_: Any) -> None:
        raise _Late

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, GIVEN_UP)
    try:
        yield
    except _Late as e:
        raise TimeoutError(f"It was broken off after {GIVEN_UP} seconds.") from e
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
