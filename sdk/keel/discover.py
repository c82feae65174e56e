"""Finding backends: what entry points of group ``keel.backends`` carry, and what is wrong with those that do not work.

A plugin is imported only when it is asked for by name, or when all are listed; a broken one never troubles the others.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points

from keel.errors import KeelError
from keel.plugin import API, Backend, LoopTarget

GROUP = "keel.backends"
DEFAULT = ("triton", "cpp")
"""What is compiled with when nothing is asked for: those of these that can run here."""
LAST_RESORT = "eager"
"""Appended where a list of backends has none of last resort."""
_LIST = 'Give names or Backend values in order of preference, for instance backends=["acme", "cpp"].'


@dataclass(frozen=True)
class Discovery:
    """All installed plugins: the usable ones by name, and for each other the error that asking for it would raise."""

    backends: Mapping[str, Backend]
    problems: Mapping[str, KeelError]


def discover() -> dict[str, Backend]:
    """Every installed backend that can run here, by name."""
    return dict(survey().backends)


def survey() -> Discovery:
    """Every installed plugin, imported and probed."""
    backends: dict[str, Backend] = {}
    problems: dict[str, KeelError] = {}
    for name, points in sorted(installed().items()):
        try:
            backends[name] = _load(name, points)
        except KeelError as error:
            problems[name] = error
    return Discovery(backends, problems)


def installed() -> dict[str, list[EntryPoint]]:
    """The entry points that carry each name; more than one where two distributions claim it.  Imports nothing."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, []).append(point)
    return found


def find(name: str) -> Backend:
    """The installed backend of that name, imported and probed.

    Raises KeelError: unknown-backend, broken-plugin, api-version or not-here.
    """
    points = installed()
    if name not in points:
        near = get_close_matches(name, points, n=1)
        raise KeelError("unknown-backend", f"no installed backend is named {name!r}.",
                        {"installed": ", ".join(sorted(points)) or "none"},
                        do=f"Did you mean {near[0]!r}?" if near else
                        f"Install the package that carries it (an entry point of group {GROUP}).")
    return _load(name, points[name])


def resolve(backends: Sequence[str | Backend] | None = None, *, strict: bool = False) -> tuple[Backend, ...]:
    """The backends asked for, in order of preference; ``None`` asks for those of ``DEFAULT`` that can run here.

    Names are looked up among installed plugins; a Backend stands for itself.  Unless one of them is of last resort, the
    installed backend ``eager`` is appended, so that every operator has an owner; under ``strict`` it is not, and
    what nobody takes is an error.  Raises what ``find`` raises, and KeelError[bad-option].
    """
    if isinstance(backends, str) or not isinstance(backends, Sequence | None):
        raise KeelError("bad-option", f"backends={backends!r} is not a list of backends.", do=_LIST)
    found = _defaults() if backends is None else [_one(b) for b in backends]
    names = [b.name for b in found]
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise KeelError("bad-option", f"backends={names} lists {twice!r} twice.", do="List each backend once.")
    if not strict and not any(b.last_resort for b in found):
        found.append(find(LAST_RESORT))
    if not found:
        raise KeelError("bad-option", "backends=[] leaves no backend to compile with under strict=True.",
                        do=f"Name at least one: {', '.join(sorted(installed()))}.")
    return tuple(found)


def _defaults() -> list[Backend]:
    """Raises what is wrong with the last of them if none can run here."""
    found, wrong = [], None
    for name in DEFAULT:
        try:
            found.append(find(name))
        except KeelError as error:
            wrong = error
    if wrong and not found:
        raise wrong
    return found


def _one(backend: object) -> Backend:
    match backend:
        case str():
            return find(backend)
        case Backend():
            _check_version(backend.name, backend.api, "the plugin")
            _check_probe(backend)
            return backend
        case LoopTarget():
            raise KeelError("bad-option", f"{backend.name} is a LoopTarget, not a Backend.",
                            do="Wrap it: keel.loop_backend(target).")
    raise KeelError("bad-option", f"{backend!r} is neither the name of a backend nor a Backend.", do=_LIST)


def _load(name: str, points: Sequence[EntryPoint]) -> Backend:
    if len(points) > 1:
        raise _broken(name, "two packages carry this name", dict(sorted((_package(p), p.value) for p in points)),
                      "Uninstall one of them.")
    point = points[0]
    try:
        value = point.load()
    except Exception as raised:
        raise _broken(name, f"{point.value} cannot be imported",
                      {_package(point): f"{type(raised).__name__}: {raised}"}, _hint(raised)) from raised
    _check_version(name, getattr(value, "api", API), _package(point))
    if not isinstance(value, Backend):
        raise _broken(name, f"{point.value} is of type {type(value).__name__}, not a Backend", None,
                      "Wrap it: keel.loop_backend(target)." if isinstance(value, LoopTarget) else None)
    if value.name != name:
        raise _broken(name, f"{point.value} is a backend that calls itself {value.name!r}", None,
                      "Let the entry point and the Backend carry the same name.")
    _check_probe(value)
    return value


def _check_version(name: str, api: object, package: str) -> None:
    if api != API:
        newer = isinstance(api, int) and api > API
        raise KeelError("api-version", f"backend {name!r} is made for version {api} of the plugin API, and this is "
                        f"version {API}.", do="Update torch-keel." if newer else f"Update {package}.")


def _check_probe(backend: Backend) -> None:
    try:
        sentence = backend.probe()
    except Exception as raised:
        raise _broken(backend.name, "its probe raised", {backend.name: f"{type(raised).__name__}: {raised}"},
                      "A probe returns None, or the sentence that says why the backend cannot run here.") from raised
    if sentence is not None:
        raise KeelError("not-here", f"backend {backend.name!r} cannot run on this machine.",
                        {backend.name: str(sentence)},
                        do="Leave it out of the list of backends, or give it what it misses.")


def _broken(name: str, why: str, reasons: Mapping[str, str] | None = None, do: str | None = None) -> KeelError:
    return KeelError("broken-plugin", f"backend {name!r} cannot be used: {why}.", reasons,
                     do=do or "This is a defect of the plugin or of its installation.")


def _hint(raised: Exception) -> str | None:
    """What to try, where a plugin uses a field that this version of the API does not have."""
    if isinstance(raised, TypeError) and any(f"{c.__name__}.__init__()" in str(raised) for c in (Backend, LoopTarget)):
        return f"The plugin may be made for another version of torch-keel: this is version {API} of the plugin API."
    return None


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value
