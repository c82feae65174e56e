"""Finds backends: loads the entry points of group ``keel.backends``, and explains why a backend cannot be used.

A plugin is imported only when a program names it, or when all are listed. A broken plugin does not affect others. A
plugin of another distribution is first imported in a separate process (see ``keel.quarantine``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.metadata import EntryPoint

from keel.cache.toolchain import check_limits
from keel.claims import claimed, claims_of, damaged, is_own
from keel.documents import shown
from keel.entry_points import Carried
from keel.errors import KeelError, message_of
from keel.interrupts import is_interrupt
from keel.plugin import API, OLDEST_API, Backend, LoopTarget
from keel.quarantine import LIMIT, Report, contained, first_imports

GROUP = "keel.backends"
DEFAULT = ("triton", "cpp")
"""The default backends, if they can run on this machine."""
LAST_RESORT = "eager"
"""The backend that is appended to a list without a backend of last resort."""
_LIST = 'Give names or Backend values in order of preference, for instance backends=["acme", "cpp"].'
_DEFECT = "This is a defect of the plugin or of its installation."
_AGAIN = "Report it to its vendor, or uninstall it. After a repair outside of the package: keel backends --again."


@dataclass(frozen=True)
class Discovery:
    """All installed plugins: the usable ones by name, and for each other plugin the error that using it would raise.
    The error of a distribution that claims a name of another one has the key ``name of distribution`` in ``problems``.
    ``notes`` says, by name, which process-wide state a plugin changed when it was imported; all of it was restored.
    ``damaged`` has, by distribution, the faults in its metadata; its readable entry points may be usable.
    """

    backends: Mapping[str, Backend]
    problems: Mapping[str, KeelError]
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    damaged: Mapping[str, KeelError] = field(default_factory=dict)


def discover() -> dict[str, Backend]:
    """Every installed backend that can run on this machine, by name."""
    return dict(survey().backends)


def survey(*, limit: float = LIMIT, again: bool = False) -> Discovery:
    """Imports and probes every installed plugin. New plugins are first imported in separate processes, each for at most
    ``limit`` seconds. With ``again``, so are all that are not Keel's.
    """
    check_limits()
    backends: dict[str, Backend] = {}
    problems: dict[str, KeelError] = {}
    notes: dict[str, Sequence[str]] = {}
    claims = sorted(installed().items())
    foreign = [points[0] for _, points in claims if not is_own(points[0])]
    reports = dict(zip(foreign, try_imports(foreign, limit=limit, again=again), strict=True))
    for name, points in claims:
        try:
            backends[name], notes[name] = _load(name, points[0], reports.get(points[0], Report()))
        except KeelError as error:
            problems[name] = error
        for other in points[1:]:
            problems[f"{name} of {other.package}"] = claimed(name, points[0], other)
    return Discovery(backends, problems, {name: changes for name, changes in notes.items() if changes}, damaged(GROUP))


def installed() -> dict[str, list[Carried]]:
    """The entry points of each name, the owner's first. Imports nothing. Keel's own distribution owns the names that it
    registers. Any other name belongs to the distribution with the same name (``acme``, ``keel-acme``), or else to the
    first distribution in alphabetical order that registers it.
    """
    return claims_of(GROUP)


def find(name: str, *, limit: float = LIMIT) -> Backend:
    """Imports and probes the installed backend of that name. A new backend that is not Keel's is first imported in a
    separate process, for at most ``limit`` seconds. Raises KeelError: unknown-backend, broken-plugin, api-version,
    not-here, or bad-option for a malformed variable.
    """
    check_limits()
    points = installed()
    if name not in points:
        near = get_close_matches(name, points, n=1)
        raise KeelError(
            "unknown-backend",
            f"no installed backend is named {name!r}.",
            {
                "installed": ", ".join(sorted(points)) or "none",
                **{
                    package: " ".join(error.reasons.values())
                    for package, error in damaged(GROUP).items()
                    if error.reasons
                },
            },
            do=f"Did you mean {near[0]!r}?"
            if near
            else f"Install the package that carries it (an entry point of group {GROUP}).",
        )
    point = points[name][0]
    [report] = [Report()] if is_own(point) else try_imports([point], limit=limit)
    return _load(name, point, report)[0]


def installed_for(devices: Collection[str]) -> tuple[Backend, ...]:
    """The installed plugins for devices of these types that can run on this machine, in the order of their names.
    Imports no plugin if ``devices`` is empty. Keel's own backends are not among them.
    """
    return tuple(b for b in installed_plugins() if b.device in devices) if devices else ()


def installed_plugins() -> tuple[Backend, ...]:
    """The installed plugins that can run on this machine, in the order of their names, without Keel's own backends."""
    own = {name for name, points in installed().items() if is_own(points[0])}
    return tuple(b for name, b in sorted(discover().items()) if name not in own)


def try_imports(points: Sequence[Carried], *, limit: float = LIMIT, again: bool = False) -> list[Report]:
    """Runs ``first_imports`` for the well-formed entry points; returns a problem for each of the others."""
    sound = [EntryPoint.pattern.fullmatch(point.value) is not None for point in points]
    outcomes = iter(first_imports([p for p, ok in zip(points, sound, strict=True) if ok], limit=limit, again=again))
    return [
        next(outcomes) if ok else Report(f"has the malformed entry point {shown(point.value)}")
        for point, ok in zip(points, sound, strict=True)
    ]


def resolve(backends: Sequence[str | Backend] | None = None, *, strict: bool = False) -> tuple[Backend, ...]:
    """The requested backends, in order of preference. ``None`` means those of ``DEFAULT`` that can run on this machine.

    Names are looked up among installed plugins; a Backend stands for itself. Unless one of them is of last resort, the
    backend ``eager`` is appended, so that every operator has an owner. Under ``strict`` it is not appended, and a call
    that no backend takes is an error. Raises what ``find`` raises, and KeelError[bad-option].
    """
    check_limits()
    if isinstance(backends, str) or not isinstance(backends, Sequence | None):
        raise KeelError("bad-option", f"backends={backends!r} is not a list of backends.", do=_LIST)
    resolved = _defaults() if backends is None else [_one(b) for b in backends]
    names = [b.name for b in resolved]
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise KeelError("bad-option", f"backends={names} lists {twice!r} twice.", do="List each backend once.")
    if not strict and not any(b.last_resort for b in resolved):
        resolved.append(find(LAST_RESORT))
    if not resolved:
        raise KeelError(
            "bad-option",
            "backends=[] leaves no backend to compile with under strict=True.",
            do=f"Name at least one: {', '.join(sorted(installed()))}.",
        )
    return tuple(resolved)


def _defaults() -> list[Backend]:
    """The default backends. If none can run on this machine, raises the error of the last one."""
    defaults, wrong = [], None
    for name in DEFAULT:
        try:
            defaults.append(find(name))
        except KeelError as error:
            wrong = error
    if wrong and not defaults:
        raise wrong
    return defaults


def _one(backend: object) -> Backend:
    match backend:
        case str():
            return find(backend)
        case Backend():
            _check_version(backend.name, backend.api, "the plugin")
            _check_probe(backend)
            return backend
        case LoopTarget():
            raise KeelError(
                "bad-option",
                f"{backend.name} is a LoopTarget, not a Backend.",
                do="Wrap it: keel.loop_backend(target).",
            )
    raise KeelError("bad-option", f"{backend!r} is neither the name of a backend nor a Backend.", do=_LIST)


def _load(name: str, point: Carried, report: Report) -> tuple[Backend, Sequence[str]]:
    """The backend, and the process-wide state that its import changed."""
    value, notes = loaded("backend", name, point, report)
    if not issubclass(type(value), Backend):  # isinstance would run code of the value
        raise _broken(
            name,
            f"{point.value} is of type {type(value).__name__}, not a Backend",
            None,
            "Wrap it: keel.loop_backend(target)." if issubclass(type(value), LoopTarget) else None,
        )
    assert isinstance(value, Backend)
    _check_version(name, value.api, point.package)
    if value.name != name:
        raise _broken(
            name,
            f"{point.value} is a backend that calls itself {value.name!r}",
            None,
            "Let the entry point and the Backend carry the same name.",
        )
    if is_own(point):
        _check_probe(value)
        return value, notes
    with contained() as changes:
        _check_probe(value)
    return value, list(dict.fromkeys([*notes, *changes.notes]))


def loaded(kind: str, name: str, point: Carried, report: Report) -> tuple[object, Sequence[str]]:
    """Loads an entry point. Returns its value and the process-wide state that the import changed, which was restored.
    Raises KeelError[broken-plugin] if its first import failed, or if importing it raises.
    """
    package = point.package
    if report.problem:
        printed = {"it printed last": report.last_output} if report.last_output else None
        raise _broken(name, f"{package} {report.problem}", printed, _AGAIN, kind)
    if report.raised:
        raise _broken(
            name, f"{point.value} cannot be imported", {package: report.raised}, _hint(report.raised), kind
        ) from _Elsewhere(report.trace)
    try:
        with contained() as changes:
            value = point.load()
    except BaseException as raised:
        if is_interrupt(raised):
            raise
        lines = "\n    ".join(line for line in message_of(raised).splitlines() if line.strip())
        message = f"{type(raised).__name__}: {lines}".removesuffix(": ")
        raise _broken(name, f"{point.value} cannot be imported", {package: message}, _hint(message), kind) from raised
    return value, changes.notes


class _Elsewhere(Exception):
    """An exception of another process, with its traceback as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _check_version(name: str, api: object, package: str) -> None:
    if not isinstance(api, int) or not OLDEST_API <= api <= API:
        newer = isinstance(api, int) and api > API
        raise KeelError(
            "api-version",
            f"backend {name!r} is made for version {api} of the plugin API, not for one of {OLDEST_API} to {API}.",
            do="Update torch-keel." if newer else f"Update {package}.",
        )


def _check_probe(backend: Backend) -> None:
    try:
        sentence = backend.probe()
    except BaseException as raised:
        if is_interrupt(raised):
            raise
        message = f"{type(raised).__name__}: {message_of(raised)}".removesuffix(": ")
        raise _broken(backend.name, "its probe raised", {backend.name: message}, _PROBE) from raised
    if sentence is None:
        return
    if not isinstance(sentence, str) or not sentence.strip():
        raise _broken(backend.name, f"its probe returned {sentence!r}", None, _PROBE)
    raise KeelError(
        "not-here",
        f"backend {backend.name!r} cannot run on this machine.",
        {backend.name: sentence},
        do="Leave it out of the list of backends, or give it what it misses.",
    )


_PROBE = "A probe returns None, or the sentence that says why the backend cannot run here."


def _broken(
    name: str, why: str, reasons: Mapping[str, str] | None = None, do: str | None = None, kind: str = "backend"
) -> KeelError:
    return KeelError("broken-plugin", f"{kind} {name!r} cannot be used: {why}.", reasons, do=do or _DEFECT)


def _hint(raised: str) -> str | None:
    """A hint for a plugin that uses a field which this version of the API does not have."""
    if raised.startswith("TypeError") and any(f"{c.__name__}.__init__()" in raised for c in (Backend, LoopTarget)):
        return f"The plugin may be made for another version of torch-keel: this is version {API} of the plugin API."
    return None
