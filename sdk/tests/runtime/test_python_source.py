"""Source text holds names that were made for it, and nothing else."""

from __future__ import annotations

import keyword
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import profile, record_function

from keel.runtime.python_source import (
    Expression,
    Function,
    Name,
    Namespace,
    arithmetic,
    call,
    infix,
    is_name,
    item,
    list_of,
    literal,
    method,
    tuple_of,
)
from keel.torch_adapter import Range, fast_range

ATTACK = "__import__('os').abort()"
STRANGE = (
    "",
    "a b",
    "a.b",
    "a\nb",
    "a;b",
    "a#",
    "1a",
    "é",
    "ﬁt",
    "lambda",
    "None",
    "match",
    "__class__",
    "_x",
    ATTACK,
    "x\u2028y",
    "x)",
    "x=1",
)


@pytest.mark.parametrize("text", STRANGE)
def test_what_is_no_name_is_not_written_but_replaced(text: str) -> None:
    space = Namespace()
    assert not is_name(text)
    for name in (space.variable("v", text), space.object(object(), text), space.shared("s", text, 1)):
        assert is_name(name) and name != text


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.text(max_size=8) | st.sampled_from(("t1", "x", "x_1", "run", *STRANGE, *keyword.kwlist))))
def test_names_are_distinct_and_each_holds_its_own(stems: list[str]) -> None:
    space = Namespace()
    inputs = [space.variable(("input", k), stem) for k, stem in enumerate(stems)]
    objects = [space.object([k], stem) for k, stem in enumerate(stems)]
    out = Function(space, inputs)
    out.give(tuple_of([*inputs, *objects]))
    assert len({*inputs, *objects}) == 2 * len(stems)
    numbers = range(len(stems))
    assert out.build("test")(*numbers) == (*numbers, *([k] for k in numbers))


def test_the_same_object_has_one_name_and_the_same_key_one_variable() -> None:
    space = Namespace()
    thing = object()
    assert space.object(thing, "a") == space.object(thing, "b") != space.object(object(), "a")
    assert space.variable(1, "a") == space.variable(1, "b") != space.variable(2, "a")


@pytest.mark.parametrize(
    "write",
    [
        lambda text, name: call(text),
        lambda text, name: call(name, [text]),
        lambda text, name: call(name, [], {"a": text}),
        lambda text, name: method(text, "size"),
        lambda text, name: item(text, 0),
        lambda text, name: tuple_of([text]),
        lambda text, name: list_of([name, text]),
        lambda text, name: infix("+", name, text),
        lambda text, name: Function(Namespace(), [text]),
        lambda text, name: Function(Namespace(), []).do(text),
        lambda text, name: Function(Namespace(), []).assign(text, name),
        lambda text, name: Function(Namespace(), []).assign(name, text),
        lambda text, name: Function(Namespace(), []).unpack([text], name),
        lambda text, name: Function(Namespace(), []).delete([text]),
        lambda text, name: Function(Namespace(), []).raise_if(text, name),
        lambda text, name: Function(Namespace(), []).raise_unless(name, text),
        lambda text, name: Function(Namespace(), []).give(text),
        lambda text, name: literal(text),
    ],
)
def test_plain_text_is_refused_everywhere(write: Any) -> None:
    with pytest.raises(TypeError):
        write(ATTACK, Namespace().variable("x", "x"))


def test_methods_and_operators_are_names_and_operators() -> None:
    x = Namespace().variable("x", "x")
    for wrong in (
        lambda: method(x, ATTACK),
        lambda: method(x, "__class__"),
        lambda: infix("if", x, x),
        lambda: call(x, [], {ATTACK: x}),
    ):
        with pytest.raises(ValueError, match="is n"):
            wrong()


def test_an_argument_whose_name_is_none_in_python_is_passed_all_the_same() -> None:
    space = Namespace()
    out = Function(space, [])
    out.give(
        call(space.object(lambda **given: given), [], {"from": literal(1), ATTACK: literal(2), "to": literal(3)}, space)
    )
    assert out.build("test")() == {"from": 1, ATTACK: 2, "to": 3}


@pytest.mark.parametrize("value", [1.5, "text", float("nan"), (1,), b"x", 1j])
def test_what_is_no_integer_is_an_object(value: Any) -> None:
    with pytest.raises(TypeError):
        literal(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a + 2 * b", 8),
        ("(a // b) ** 2", 0),
        ("least(a, b) if a < b else -a", 2),
        ("math.floor(a / 2)", 1),
        ("a < b and not a == b", True),
    ],
)
def test_arithmetic_is_written_with_other_names(text: str, value: Any) -> None:
    import math

    space = Namespace()
    names = {
        "a": space.variable("a", "s 0"),
        "b": space.variable("b", "lambda"),
        "least": space.object(min),
        "math": space.object(math),
    }
    out = Function(space, [names["a"], names["b"]])
    out.give(arithmetic(text, names))
    assert out.build("test")(2, 3) == value


@pytest.mark.parametrize(
    "text",
    [
        ATTACK,
        "c",
        "a.__class__",
        "a._x",
        "(lambda: a)()",
        "[a for a in b]",
        "a[0]",
        "'text'",
        "a := 1",
        "f'{a}'",
        "a(**b)",
        "a(b=1)",
        "a if",
        "a\nb",
        "b'x'",
        "...",
        "await a",
        "a, *b",
        "{a: b}",
        "{a}",
        "(" * 500,
        "a" + ".b" * 3,
        "1j",
        "a; b",
        "a #",
        "yield",
        "least(*a)",
    ],
)
def test_what_is_not_arithmetic_is_refused(text: str) -> None:
    space = Namespace()
    names = {"a": space.variable("a", "a"), "b": space.variable("b", "b"), "least": space.object(min)}
    if text == "a #":  # a comment is dropped: the text is parsed again
        assert arithmetic(text, names) == "(a)"
        return
    with pytest.raises(ValueError, match="not arithmetic"):
        arithmetic(text, names)


def test_a_function_has_its_text_and_raises_on_its_own_lines() -> None:
    space = Namespace()
    x = space.variable("x", "x")
    out = Function(space, [x])
    out.raise_if(infix("%", x, literal(2)), call(space.object(ValueError)))
    assert out.number == 3
    out.give(x)
    run = out.build("test")
    assert run.__doc__ == "def run(x):\n    if (x % 2):\n        raise object_3()\n    return x\n" and run(4) == 4
    with pytest.raises(ValueError, match=r"^$") as raised:
        run(3)
    assert raised.traceback[-1].lineno + 1 == 3
    assert isinstance(x, Name) and isinstance(x, Expression)


@pytest.mark.parametrize("make", [record_function, fast_range])
def test_a_traced_form_runs_the_same_lines_in_ranges_while_a_profiler_is_active(make: Range) -> None:
    space = Namespace()
    args = space.variable("args", "args")
    function = Function(space, [args])
    function.show_ranges(args)
    function.guard()
    result = space.variable("result", "result")
    function.assign(result, call(space.object(torch.neg, "neg"), [item(args, 0)]))
    function.in_range(make, 'a "range"\'s name\n')
    function.give(result)
    lines: list[int] = []

    def noted(raised: BaseException) -> None:
        assert raised.__traceback__ is not None
        lines.append(raised.__traceback__.tb_lineno)

    function.guarded(space.object(noted, "noted"))
    run = function.build("test")
    x = torch.ones(2)
    assert torch.equal(run([x]), -x)
    for _ in range(2):
        with profile(acc_events=True) as profiler:
            assert torch.equal(run([x]), -x)
            with pytest.raises(TypeError):
                run([None])
        (event, *_) = [e for e in profiler.events() if e.name == "aten::neg"]
        assert event.cpu_parent.name == 'a "range"\'s name\n'
    with pytest.raises(TypeError):
        run([None])
    assert lines == [4, 4, 4]
