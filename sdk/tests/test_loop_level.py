"""A loop target as a graph-level backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import keel
from keel import Limits, LoopTarget, Source, loop_backend


def test_atomics_are_of_some_dtypes() -> None:
    limits = Limits(atomics=frozenset({"add"}), atomic_dtypes=frozenset({torch.float32}))
    assert limits.lacks("write", torch.int8) == limits.lacks("add", torch.float32) == ""
    assert limits.lacks("add", torch.int8) == "atomic add of i8"
    assert limits.lacks("max", torch.float32) == "atomic max"
    assert Limits().lacks("add", torch.int8) == ""


def test_memory_that_is_made_while_compiling_is_real() -> None:
    """PyTorch compiles where tensors that are made are fake; what a launcher keeps is used when it runs."""
    made: list[torch.Tensor] = []

    def build(sources: Sequence[Source]) -> list[Callable[..., Any]]:
        def launch(in0: torch.Tensor, out0: torch.Tensor) -> None:
            out0.copy_(in0 * made[-1])

        made.append(torch.full((3,), 2.0))
        return [launch for _ in sources]

    lab = loop_backend(
        LoopTarget(
            name="lab",
            device="cpu",
            dtypes={torch.float32: "float"},
            reductions={},
            build=build,
            scalars={"mul": "mul"},
            render=str,
        )
    )
    x = torch.randn(3, requires_grad=True)
    for case in (x, x.detach()):
        fn = torch.compile(lambda x: x * 2, backend="keel", options={"backends": [lab, "eager"]}, fullgraph=True)
        assert torch.equal(fn(case), x * 2)
    assert made and {type(t) for t in made} == {torch.Tensor}
    assert torch.equal(keel.compile(lambda x: x * 2, backends=[lab])(x.detach()), x * 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hook", "said"),
    [
        ({"render": lambda kernel: None}, "`render` returned None"),
        ({"render": lambda kernel: " "}, "`render` returned"),
        ({"build": lambda sources: None}, "returned a NoneType"),
        ({"build": lambda sources: [7]}, "returned a list"),
        ({"build": lambda sources: []}, "built 0 launchers for 1 kernels"),
        ({"build": lambda sources: 1 / 0}, "division"),
    ],
)
def test_a_target_that_renders_or_builds_nothing_is_told_of_and_passed_over(hook: dict[str, Any], said: str) -> None:
    lab = loop_backend(
        LoopTarget(
            **{
                "name": "lab",
                "device": "cpu",
                "dtypes": {torch.float32: "float"},
                "reductions": {},
                "scalars": {"mul": "mul"},
                "render": str,
                "build": list,
                **hook,
            }
        )
    )
    torch.compiler.reset()
    want = torch.full((3,), 2.0)
    with pytest.warns(keel.KeelWarning, match="lab could not compile part p0") as warned:
        assert torch.equal(keel.compile(lambda x: x * 2, backends=[lab, "eager"])(torch.ones(3)), want)
    assert len(warned) == 1
    with pytest.raises(keel.KeelError) as caught:
        keel.compile(lambda x: x * 3, backends=[lab, "eager"], strict=True)(torch.ones(3))
    assert said in str(caught.value)
