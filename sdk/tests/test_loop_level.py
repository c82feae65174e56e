"""A loop target as a graph-level backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

import keel
from keel import Limits, LoopTarget, Source, loop_backend
from keel.loop_level import begin_part, build_part, compile_kernels, load_kernels
from keel.loops import parse
from keel.plugin import CodeObject, CompileContext, KernelFunction


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


# -- machine code ------------------------------------------------------------------------------------------------------


def code(*sources: int, content: bytes = b"2") -> CodeObject:
    functions = tuple(KernelFunction(name="k", source=source) for source in sources)
    return CodeObject(kind="acme", content=content, target="acme1", needs=(), functions=functions)


def lab(**more: Any) -> LoopTarget:
    """A target whose machine code of each kernel is a factor."""

    def compile(sources: Sequence[Source], machine: str | None) -> list[CodeObject]:
        return [code(k, content=b"3" if machine == "acme3" else b"2") for k in range(len(sources))]

    def load(objects: Sequence[CodeObject], sources: Sequence[Source]) -> list[Callable[..., Any]]:
        def launcher(factor: float) -> Callable[..., Any]:
            return lambda in0, out0: out0.copy_(in0 * factor)

        return [launcher(float(each.content)) for each in objects]

    fields = {
        "name": "lab",
        "device": "cpu",
        "dtypes": {torch.float32: "float"},
        "reductions": {},
        "scalars": {"mul": "mul"},
        "render": str,
        "compile": compile,
        "load": load,
    }
    return LoopTarget(**{**fields, **more})


SOURCES = [Source(parse(f"kernel {name}(in0: f32[3]) -> (out0: f32[3]):\n"), "text") for name in "ab"]
CTX = CompileContext()


def test_a_part_is_loaded_from_machine_code() -> None:
    target = lab()
    parts: list[Any] = []

    def compile(gm: torch.fx.GraphModule, ctx: CompileContext) -> Any:
        run = begin_part(target, gm, ctx)()
        parts.append(run.loop_part)  # type: ignore[attr-defined]
        return run

    keel.compile(lambda x: x * 2, backends=[replace(loop_backend(target), compile=compile)])(torch.ones(3))
    (part,) = parts
    objects = compile_kernels(target, part.sources, CTX, "acme3")
    run = build_part(lab(build=None), part, CTX, objects)
    assert torch.equal(run(torch.ones(3))[0], torch.full((3,), 3.0)) and run.loop_part is part
    assert compile_kernels(target, [], CTX) == ()


def test_a_target_without_machine_code() -> None:
    bare = lab(build=list, compile=None, load=None)
    with pytest.raises(keel.KeelError, match=r"bad-artifact.*lab has no machine code that can be saved"):
        compile_kernels(bare, SOURCES, CTX)
    with pytest.raises(keel.KeelError, match=r"bad-artifact.*lab cannot load machine code"):
        load_kernels(bare, [code(0, 1)], SOURCES, CTX)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "returned a NoneType"),
        ([7], "returned a list"),
        ([code(0, 1), code(2)], "belong to the sources 0, 1, 2"),
    ],
)
def test_what_compile_returns_is_checked(made: Any, said: str) -> None:
    target = lab(compile=lambda sources, machine: made)
    with pytest.raises(keel.KeelError, match=f"(?s)build-failed.*{said}"):
        compile_kernels(target, SOURCES, CTX)


def test_functions_of_a_kernel_may_be_in_several_objects() -> None:
    objects = [code(1), code(0, 1)]
    assert compile_kernels(lab(compile=lambda sources, machine: objects), SOURCES, CTX) == (*objects,)


def test_what_load_returns_is_checked() -> None:
    with pytest.raises(keel.KeelError, match=r"build-failed.*`load` returned a NoneType"):
        load_kernels(lab(load=lambda objects, sources: None), [code(0, 1)], SOURCES, CTX)
    with pytest.raises(keel.KeelError, match="built 1 launchers for 2 kernels"):
        load_kernels(lab(load=lambda objects, sources: [print]), [code(0, 1)], SOURCES, CTX)
    with pytest.raises(keel.KeelError, match=r"bad-artifact.*does not fit 2 kernels"):
        load_kernels(lab(), [code(0), code(2)], SOURCES, CTX)
