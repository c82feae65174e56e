"""Compiled programs as JSON and back: the data classes of a closed list, and the values in their fields.

JSON's own values stand for themselves, and a list for a tuple. Any other value is an object with one key, which names
its kind: a data class of the list, or a kind such as ``dtype`` or ``size``. Fields with their default value are left
out, so that a later version may add fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache, partial
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import sympy
import torch

from keel.artifact.function_names import FunctionNames
from keel.documents import Malformed
from keel.loops.ir import Kernel
from keel.plugin import Fusion, SizeRange
from keel.runtime import launch_program as launches
from keel.runtime.contract_checks import PartContract
from keel.runtime.link_program import LinkProgram, SizeCall, Value
from keel.schedule.tensor_graph import CheckSite, Slot
from keel.serialize.codec import Data, NotSerializable, decode, encode
from keel.torch_adapter import expression_data, expression_of
from keel.types import SymType, TensorType

CLASSES: Mapping[str, type] = {
    each.__name__: each
    for each in (
        TensorType,
        SymType,
        Slot,
        CheckSite,
        *get_args(launches.Source),
        *get_args(launches.Step),
        launches.ArenaTensor,
        launches.ArenaView,
        launches.ArenaPlan,
        launches.CheckMemory,
        launches.LaunchProgram,
        PartContract,
        SizeRange,
        Fusion,
        Value,
        SizeCall,
        LinkProgram,
    )
}
"""The data classes that files may contain."""

ASSUMPTIONS = frozenset(("integer", "positive", "nonnegative", "real"))
"""The assumptions on a symbol that are kept: those that PyTorch and Keel make."""


@dataclass(frozen=True)
class Names:
    """How values without data of their own are named in a file: functions, kernels and symbols. ``symbols`` collects
    the symbols that are written, with what is assumed of them.
    """

    functions: FunctionNames
    kernels: Mapping[Kernel, int]
    symbols: dict[str, dict[str, bool]]


@dataclass(frozen=True)
class Known:
    """What the names of a file stand for."""

    functions: FunctionNames
    kernels: Sequence[Kernel]
    symbols: Mapping[str, sympy.Symbol]


# -- to data ----------------------------------------------------------------------------------------------------------


def to_data(value: Any, names: Names) -> Data:
    """The value as JSON. Raises NotSerializable."""
    inner = partial(to_data, names=names)
    match value:
        case sympy.Basic():
            return {"size": _expression(value, names)}
        case tuple() | list():
            return [inner(v) for v in value]
        case Mapping():
            return {"dict": [[inner(k), inner(v)] for k, v in value.items()]}
        case frozenset():
            return {"set": sorted((inner(v) for v in value), key=repr)}
        case slice():
            return {"slice": [value.start, value.stop, value.step]}
        case Kernel():
            return {"kernel": names.kernels[value]}
    if is_dataclass(value) and CLASSES.get(type(value).__name__) is type(value):
        return {
            type(value).__name__: {f.name: inner(v) for f in fields(value) if _differs(f, v := getattr(value, f.name))}
        }
    if callable(value) and not isinstance(value, torch.dtype):
        return {"function": names.functions.to_data(value, inner)}
    return encode(value)


def _differs(field: Field[Any], value: Any) -> bool:
    """True if a field does not have its default value."""
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    return default is MISSING or type(value) is not type(default) or value != default


def _expression(expr: sympy.Basic, names: Names) -> Data:
    for symbol in expr.free_symbols:
        assumed = {k: v for k, v in symbol._assumptions_orig.items() if v is not None}
        if not assumed.keys() <= ASSUMPTIONS or names.symbols.setdefault(symbol.name, assumed) != assumed:
            raise NotSerializable(f"The symbol {symbol} has assumptions that cannot be saved.")
    try:
        return expression_data(expr)
    except ValueError as e:
        raise NotSerializable(str(e)) from e


# -- from data --------------------------------------------------------------------------------------------------------


def symbols_from(data: Mapping[str, Mapping[str, bool]]) -> dict[str, sympy.Symbol]:
    """The symbols of a file by name."""
    return {name: sympy.Symbol(name, **assumed) for name, assumed in data.items()}


def from_data(data: Data, known: Known, place: str = "") -> Any:
    """The value that ``to_data`` wrote. Raises Malformed for anything else; the place in it begins with ``place``."""
    try:
        return _value(data, known)
    except Malformed as e:
        raise Malformed(f"{place}{e.place}", e.why) from e


def _value(data: Data, known: Known) -> Any:
    try:
        match data:
            case None | bool() | int() | float() | str():
                return data
            case list():
                return tuple(_values(data, known))
            case {"size": expr}:
                return expression_of(expr, known.symbols)
            case {"dict": list(items)}:
                return {_value(k, known): _value(v, known) for k, v in items}
            case {"set": list(values)}:
                return frozenset(_values(values, known))
            case {"slice": [start, stop, step]}:
                return slice(start, stop, step)
            case {"kernel": int(number)} if 0 <= number < len(known.kernels):
                return known.kernels[number]
            case {"function": name}:
                return known.functions.from_data(name, partial(_value, known=known))
        if isinstance(data, dict) and len(data) == 1 and (made := CLASSES.get(kind := next(iter(data)))) is not None:
            return _record(made, data[kind], known)
        return decode(data, _not_a_constant, _not_a_constant)
    except Malformed:
        raise
    except (TypeError, ValueError, ArithmeticError, RuntimeError) as e:  # of sympy, or of PyTorch's constructors
        raise Malformed("", str(e)) from e


def _values(data: list[Data], known: Known) -> list[Any]:
    values = list[Any]()
    try:
        for each in data:
            values.append(_value(each, known))
    except Malformed as e:
        raise Malformed(f"[{len(values)}]{e.place}", e.why) from e
    return values


def _not_a_constant(name: str) -> Any:
    raise NotSerializable(f"{name!r} does not encode a constant.")


def _record(made: type, data: Any, known: Known) -> Any:
    if not isinstance(data, dict):
        raise Malformed("", f"It is not the fields of {made.__name__}.")
    return made(**fields_from(made, data, known))


def fields_from(made: type, data: Mapping[str, Data], known: Known) -> dict[str, Any]:
    """The values of fields of a data class, each of the type that the class has there. Raises Malformed."""
    checks, values = _checks(made), dict[str, Any]()
    for name, each in data.items():
        if (check := checks.get(name)) is None:
            raise Malformed("", f"{made.__name__} has no field {str(name)[:80]!r}.")
        try:
            values[name] = _value(each, known)
        except Malformed as e:
            raise Malformed(f".{name}{e.place}", e.why) from e
        if not check(values[name]):
            raise Malformed(f".{name}", f"Its value is of another type than {made.__name__} has there.")
    return values


Check = Callable[[Any], bool]


@cache
def _checks(made: type) -> Mapping[str, Check]:
    """A check for the values of each field, by its annotation."""
    hints = get_type_hints(made)
    return {f.name: _check_of(hints[f.name]) for f in fields(made)}


def _check_of(hint: Any) -> Check:
    """Tells if a value has the type of an annotation: a class, a union, a tuple, a mapping, a set or a literal."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda value: True
    if origin is Literal:
        return lambda value: value in inner
    if origin in (Union, UnionType):
        return partial(_is_any, [*map(_check_of, inner)])
    if origin is tuple and inner[1:] == (...,):
        return partial(_is_all, tuple, _check_of(inner[0]))
    if origin is tuple:
        return partial(_is_tuple, [*map(_check_of, inner)])
    if origin is frozenset:
        return partial(_is_all, frozenset, _check_of(inner[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return partial(_is_mapping, *map(_check_of, inner))
    if origin is not None:
        return callable  # Callable[..., Any], the only other kind in these classes
    if hint is float:
        return lambda value: type(value) in (int, float)
    if hint in (int, str, bool):
        return lambda value: type(value) is hint
    return lambda value: isinstance(value, hint)


def _is_any(checks: Sequence[Check], value: Any) -> bool:
    return any(check(value) for check in checks)


def _is_all(kind: Any, check: Check, value: Any) -> bool:
    return isinstance(value, kind) and all(map(check, value))


def _is_tuple(checks: Sequence[Check], value: Any) -> bool:
    return (
        isinstance(value, tuple) and len(value) == len(checks) and all(c(v) for c, v in zip(checks, value, strict=True))
    )


def _is_mapping(key: Check, held: Check, value: Any) -> bool:
    return isinstance(value, Mapping) and all(key(k) and held(v) for k, v in value.items())
