"""The options of ``keel.compile``, checked."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from operator import itemgetter
from typing import Any

from keel.cost import Cost, read_sheets
from keel.discovery import installed_for, installed_plugins, resolve
from keel.errors import KeelError, KeelWarning
from keel.extras import missing, require
from keel.pins import checked_pins, pinned
from keel.placement.solve.build_problem import Pricing, sheets_of
from keel.plugin import Backend
from keel.specialize import needs_static_sizes, specialized

Costs = Mapping[str, Cost] | str | os.PathLike[str]
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
WITH_GRAPHS = ("reduce-overhead", "max-autotune")
"""The modes that capture graphs on the device and replay them."""
MEASURING = ("max-autotune", "max-autotune-no-cudagraphs")
"""The modes that spend time on compiling and memory: placements are measured where backends have data sheets."""
PLACEMENTS = ("auto", "order", "cost", "measured")
BY_COST = ("cost", "measured")
COSTS = "KEEL_COSTS"
"""The environment variable that names a file of data sheets."""


@dataclass(frozen=True)
class Settings:
    """The user's options. Equal settings compile equally, so Dynamo reuses compiled code."""

    backends: tuple[Backend, ...]
    mode: str = "default"
    strict: bool = False
    fuel: int | None = None
    placement: str = "auto"
    named: bool = True
    """False if the user named no backends, so that installed plugins for other devices are used too."""
    freeze: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    """The options of backends that the user set, by ``backend.option``, sorted. They are not yet checked if no backends
    were ``named``."""
    buckets: tuple[int, ...] | None = None
    """The sizes that backends which need known sizes round up to; None for powers of two."""
    sheets: tuple[tuple[str, Cost], ...] = ()
    """The user's data sheets for plugins, by name, sorted, if no backends were ``named``."""
    pins: tuple[tuple[str, str], ...] = ()
    """The backend of each operator that the user pins. They apply when all backends are known: if none were ``named``,
    with the plugins for the devices of the graph."""

    @property
    def replays_graphs(self) -> bool:
        return self.mode in WITH_GRAPHS

    @property
    def last_resorts(self) -> tuple[Backend, ...]:
        """The backends that compile a part whose own backend fails in a call; none if the settings are ``strict``."""
        return () if self.strict else tuple(b for b in self.backends if b.last_resort)

    @property
    def spends_memory(self) -> bool:
        """True if speed matters more to the user than memory."""
        return self.mode in MEASURING


def pricing(settings: Settings, constants: Collection[str] = ()) -> Pricing | None:
    """The pricing of placements, if graphs are placed by cost (see ``compile``); else None."""
    several = sum(not b.last_resort for b in settings.backends) > 1
    if settings.placement in BY_COST:
        require("placement", "Placement by cost")
        return Pricing(constants, compete=True)
    if settings.placement != "auto" or not several or sheets_of(settings.backends) is None:
        return None
    if not missing("placement"):
        return Pricing(constants, compete=False)
    warnings.warn(
        'Graphs are placed by the order of backends, not by cost: that needs the extra "placement" '
        '(pip install "torch-keel[placement]"). Pass placement="order" to choose that.',
        KeelWarning,
        stacklevel=2,
    )
    return None


_TYPES: Mapping[str, tuple[type, ...]] = {
    "mode": (str,),
    "backends": (list, tuple),
    "strict": (bool,),
    "fuel": (int,),
    "placement": (str,),
    "costs": (Mapping, str, os.PathLike),
    "pins": (Mapping,),
    "freeze": (bool,),
    "buckets": (list, tuple),
}


def read_settings(mode: str | None, options: Mapping[str, Any] | None) -> Settings:
    """Checks the options, of which ``mode`` may be one: ``torch.compile`` does not take both. If the user named no
    backends, pins, and data sheets and options of plugins, wait for ``with_plugins``.

    Raises KeelError[bad-option], and errors of ``resolve``.
    """
    passed = {name: value for name, value in (options or {}).items() if value is not None}
    of_backends = {name: value for name, value in passed.items() if "." in str(name)}
    chosen = {name: value for name, value in passed.items() if name not in of_backends}
    for name, value in chosen.items():
        if name not in _TYPES:
            near = get_close_matches(str(name), _TYPES, n=1)
            raise KeelError(
                "bad-option",
                f"There is no option {name!r}.",
                {"options": ", ".join(_TYPES)},
                do=f"Did you mean {near[0]!r}?" if near else None,
            )
        if not isinstance(value, _TYPES[name]) or (
            isinstance(value, int) and (value < 0 or isinstance(value, bool) != (bool in _TYPES[name]))
        ):
            raise KeelError("bad-option", f"The option {name!r} is {value!r}.", do=f"Give {_MEANING[name]}.")
    mode = chosen.get("mode", "default") if mode is None else mode
    if mode not in MODES:
        raise KeelError(
            "bad-option",
            f"There is no mode {mode!r}.",
            {"modes": ", ".join(MODES)},
            do="Leave the mode out, or use one of these.",
        )
    if (placement := chosen.get("placement", "auto")) not in PLACEMENTS:
        raise KeelError(
            "bad-option",
            f"There is no placement {placement!r}.",
            {"placements": ", ".join(PLACEMENTS)},
            do="Leave it out, or use one of these.",
        )
    return _settings(mode, placement, chosen, of_backends)


def _settings(mode: str, placement: str, chosen: Mapping[str, Any], of_backends: Mapping[str, Any]) -> Settings:
    """The settings of options whose names and types are right."""
    named, strict = chosen.get("backends") is not None, chosen.get("strict", False)
    sheets, pins = _sheets(chosen.get("costs", os.environ.get(COSTS))), checked_pins(chosen.get("pins", {}))
    backends = _with_sheets(resolve(chosen.get("backends"), strict=strict), sheets)
    settings = Settings(
        backends,
        mode,
        strict,
        chosen.get("fuel"),
        placement,
        named,
        chosen.get("freeze", False),
        buckets=_checked_buckets(chosen.get("buckets")),
    )
    if named:
        own, backends = _chosen_options(backends, of_backends), pinned(backends, pins)
        settings = replace(settings, backends=backends, options=own, pins=tuple(pins.items()))
        return _completed(_for_mode(settings))
    names = {b.name for b in backends}
    later = tuple(sorted(((name, sheet) for name, sheet in sheets.items() if name not in names), key=itemgetter(0)))
    options = tuple(sorted(of_backends.items()))
    return _completed(replace(settings, options=options, sheets=later, pins=tuple(pins.items())))


def with_plugins(settings: Settings, devices: Collection[str]) -> Settings:
    """The settings for tensors on devices of these types. If the user named no backends, the installed plugins for the
    devices that the default backends do not work on come first, in the order of their names, and pins and data sheets
    apply to them.

    Raises KeelError[bad-option] if the placement is by cost and a plugin has no data sheet, for wrong options of
    backends, and for pins to backends that no graph can have.
    """
    if settings.named:
        return settings
    known = {b.device for b in settings.backends if not b.last_resort}
    plugins = installed_for(frozenset(devices) - known - {"meta"})
    backends = (*_with_sheets(plugins, dict(settings.sheets)), *settings.backends)
    own = _chosen_options(backends, dict(settings.options))
    elsewhere = _elsewhere(settings, backends, known)
    return _completed(
        _for_mode(replace(settings, backends=pinned(backends, dict(settings.pins), elsewhere), options=own))
    )


def _elsewhere(settings: Settings, backends: Sequence[Backend], known: Collection[str]) -> frozenset[str]:
    """The plugins that this graph does not have and a graph on another device has. Imports plugins only if the user
    pins something to a backend that is not in use here.
    """
    if {who for _, who in settings.pins} <= {b.name for b in backends}:
        return frozenset()
    return frozenset(b.name for b in installed_plugins() if b.device not in {*known, "*"})


def _for_mode(settings: Settings) -> Settings:
    """The settings, which measure placements if the mode does that and all backends have data sheets."""
    measures = settings.placement == "auto" and settings.mode in MEASURING and sheets_of(settings.backends) is not None
    return replace(settings, placement="measured") if measures and not missing("placement") else settings


def _completed(settings: Settings) -> Settings:
    """The settings, with backends that need known sizes made to take symbolic ones. Raises KeelError[bad-option] if the
    placement is by cost and a backend has no data sheet.
    """
    if any(map(needs_static_sizes, settings.backends)):
        last = settings.last_resorts
        backends = (specialized(b, settings.buckets, last) if needs_static_sizes(b) else b for b in settings.backends)
        settings = replace(settings, backends=tuple(backends))
    if settings.placement in BY_COST and sheets_of(settings.backends) is None:
        lacking = [b.name for b in settings.backends if b.cost is None and not b.last_resort]
        raise KeelError(
            "bad-option",
            f"The placement cannot be by cost: {' and '.join(lacking)} "
            f"{'has' if len(lacking) == 1 else 'have'} no data sheet.",
            do="Give each backend a `cost`, or leave the placement out.",
        )
    return settings


def _checked_buckets(buckets: Sequence[Any] | None) -> tuple[int, ...] | None:
    """The sizes that static backends round up to. Raises KeelError[bad-option] unless they are positive and ascend."""
    if buckets is None:
        return None
    positive = all(isinstance(b, int) and not isinstance(b, bool) and b > 0 for b in buckets)
    if not positive or list(buckets) != sorted(set(buckets)):
        raise KeelError(
            "bad-option",
            f"The option 'buckets' is {buckets!r}.",
            do="Give sizes in ascending order, each once: buckets=[64, 128, 256]. An empty list turns rounding off.",
        )
    return tuple(buckets)


def _chosen_options(backends: Sequence[Backend], chosen: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The options of backends, ``{"acme.level": 3}``, checked and sorted. Raises KeelError[bad-option]."""
    declared = {f"{b.name}.{option.name}": (b.name, option) for b in backends for option in b.options}
    for name in chosen:
        if name not in declared:
            owner = name.partition(".")[0]
            near = get_close_matches(name, declared, n=1)
            raise KeelError(
                "bad-option",
                f"There is no option {name!r}."
                if owner in {b.name for b in backends}
                else f"The option {name!r} is of {owner!r}, which is not among the backends.",
                {"options": ", ".join(declared) or "these backends have none"},
                do=f"Did you mean {near[0]!r}?" if near else "keel backends shows the options of each backend.",
            )
    return tuple(sorted((name, declared[name][1].checked(declared[name][0], value)) for name, value in chosen.items()))


def _sheets(costs: Costs | None) -> Mapping[str, Cost]:
    """The data sheets that the user passed, by name of the backend."""
    if costs is None:
        return {}
    return costs if isinstance(costs, Mapping) else read_sheets(costs)


def _with_sheets(backends: Sequence[Backend], sheets: Mapping[str, Cost]) -> tuple[Backend, ...]:
    """The backends, with these data sheets in place of their own."""
    return tuple(replace(b, cost=sheets[b.name]) if b.name in sheets else b for b in backends)


_MEANING = {
    "mode": f"one of {', '.join(MODES)}",
    "backends": "a list of names or Backend values",
    "strict": "True or False",
    "fuel": "the number of fusions to allow",
    "placement": f"one of {', '.join(PLACEMENTS)}",
    "costs": "data sheets by backend name, or the path of a file of them",
    "pins": "names of backends by operator",
    "freeze": "True or False",
    "buckets": "sizes in ascending order",
}
