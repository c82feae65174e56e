"""Options of backends: declared by a plugin, set by the user, checked, and seen by ``compile``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import fx

import keel
from keel import Backend, KeelError
from keel.plugin import CompileContext, Option
from keel.testing import find

LEVEL = Option(name="level", type=int, default=2, sentence="How hard to optimize.", choices=(1, 2, 3))
FAST = Option(name="fast", type=bool, default=False, sentence="Reassociates sums.")
RATE = Option(name="rate", type=float, default=None, sentence="The share of memory to use.")


def acme(seen: list[dict[str, Any]], options: Sequence[Option] = (LEVEL, FAST, RATE)) -> Backend:
    def compile(gm: fx.GraphModule, ctx: CompileContext) -> Any:
        seen.append(dict(ctx.options))
        return gm

    return Backend(name="acme", device="cpu", supports=lambda call: None, compile=compile, options=tuple(options))


def compiled(options: dict[str, Any]) -> dict[str, Any]:
    torch.compiler.reset()
    seen: list[dict[str, Any]] = []
    keel.compile(torch.sin, backends=[acme(seen)], strict=True, options=options)(torch.ones(2))
    return seen[0]


def test_defaults_reach_compile() -> None:
    assert compiled({}) == {"level": 2, "fast": False, "rate": None}


def test_what_the_user_sets_reaches_compile() -> None:
    assert compiled({"acme.level": 3, "acme.rate": 1}) == {"level": 3, "fast": False, "rate": 1}


def test_torch_compile_passes_them() -> None:
    torch.compiler.reset()
    seen: list[dict[str, Any]] = []
    options: dict[str, Any] = {"backends": [acme(seen)], "strict": True, "acme.fast": True}
    torch.compile(torch.cos, backend="keel", options=options)(torch.ones(2))
    assert seen[0]["fast"] is True


def test_a_target_s_functions_get_them() -> None:
    torch.compiler.reset()
    seen: list[Any] = []
    target = find("interp").target
    assert target is not None
    build, render = target.build, target.render

    def built(sources: Any, ctx: CompileContext) -> Any:
        seen.append(ctx.options["level"])
        return build(sources)

    def rendered(kernel: Any, ctx: CompileContext) -> str:
        seen.append(ctx.options["level"])
        return render(kernel)

    own = keel.loop_backend(replace(target, name="acme", options=(LEVEL,), build=built, render=rendered))
    x = torch.ones(3)
    run = keel.compile(torch.sin, backends=[own], strict=True, options={"acme.level": 1})
    torch.testing.assert_close(run(x), x.sin())
    assert seen == [1, 1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"acme.level": 4}, "The option acme.level is 4, and must be one of 1, 2, 3."),
        ({"acme.level": "3"}, "The option acme.level is '3', and must be an integer."),
        ({"acme.level": True}, "The option acme.level is True, and must be an integer."),
        ({"acme.fast": 1}, "The option acme.fast is 1, and must be True or False."),
        ({"acme.lvel": 1}, "There is no option 'acme.lvel'."),
        ({"other.level": 1}, "The option 'other.level' is of 'other', which is not among the backends."),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(KeelError) as raised:
        compiled(options)
    assert raised.value.code == "bad-option"
    assert sentence in str(raised.value)


def test_a_near_name_is_suggested() -> None:
    with pytest.raises(KeelError, match=r"Did you mean 'acme.level'\?"):
        compiled({"acme.lvel": 1})


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"name": "Level"}, "has the name 'Level'"),
        ({"type": list}, "has type="),
        ({"default": "two"}, "must be an integer"),
        ({"choices": (1, "2")}, "must be an integer"),
        ({"sentence": ""}, "has no sentence"),
    ],
)
def test_a_wrong_declaration_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(KeelError, match=sentence) as raised:
        replace(LEVEL, **fields)
    assert raised.value.code == "bad-plugin"


def test_two_options_of_one_name_are_refused() -> None:
    with pytest.raises(KeelError, match="two options named 'level'"):
        acme([], (LEVEL, LEVEL))
