"""Containers of arguments and results: Python's own, those that the process registered, and those that are listed."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from torch.utils import _pytree as pytree

from keel import KeelError
from keel.serialize import load_graph, save_graph

from .archives import changed

pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@dataclass
class Row:
    x: torch.Tensor
    note: torch.Tensor | None = None


class Bag:
    """A container whose registration brings code of its own for files."""

    read: ClassVar[list[Any]] = []

    def __init__(self, held: list[Any]) -> None:
        self.held = held


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    pytree._register_namedtuple(Pair, serialized_type_name="keel_tests.Pair")
    torch.export.register_dataclass(Row, serialized_type_name="keel_tests.Row")
    pytree.register_pytree_node(
        Bag,
        lambda bag: (bag.held, len(bag.held)),
        lambda held, _: Bag(list(held)),
        serialized_type_name="keel_tests.Bag",
        to_dumpable_context=lambda n: {"n": n},
        from_dumpable_context=lambda said: Bag.read.append(said) or said["n"],
        flatten_with_keys_fn=lambda bag: ([(pytree.SequenceKey(i), v) for i, v in enumerate(bag.held)], len(bag.held)),
    )
    yield
    for kind in (Pair, Row, Bag):
        pytree._deregister_pytree_node(kind)


class Nested(torch.nn.Module):
    def forward(self, x: torch.Tensor, given: Any) -> Any:
        leaves, tree = pytree.tree_flatten(given)
        return pytree.tree_unflatten([x + leaf for leaf in leaves], tree)


def saved(given: Any, file: Path) -> Path:
    save_graph(torch.export.export(Nested(), (torch.ones(2), given)), file)
    return file


ONE, TWO = torch.ones(2), torch.full((2,), 2.0)
GIVEN = {
    "tuple": (ONE, [TWO]),
    "dict": {"a": ONE, 3: TWO},
    "OrderedDict": OrderedDict(b=ONE, a=TWO),
    "defaultdict": defaultdict(dict, a=ONE),
    "deque": deque([ONE, TWO], maxlen=3),
    "empty": ((), [], {}, [ONE]),
    "named tuple": Pair(ONE, TWO),
    "data class": Row(ONE),
    "both": [Row(ONE, TWO), Pair(TWO, ONE)],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", GIVEN)
def test_arguments_and_results_are_nested_as_they_were(kind: str, tmp_path: Path) -> None:
    loaded = load_graph(saved(GIVEN[kind], tmp_path / "graph.keel"))
    want = Nested()(TWO, GIVEN[kind])
    found = loaded(TWO, GIVEN[kind])
    (leaves, tree), (wanted, like) = pytree.tree_flatten(found), pytree.tree_flatten(want)
    assert tree == like and type(found) is type(want)
    torch.testing.assert_close(leaves, wanted)


def test_a_class_with_code_of_its_own_has_to_be_listed(tmp_path: Path) -> None:
    file = saved(Bag([ONE, TWO]), tmp_path / "graph.keel")
    Bag.read.clear()
    with pytest.raises(KeelError, match=r"(?s)bad-file.*keel_tests.Bag.*containers=\[Bag\]"):
        load_graph(file)
    assert not Bag.read
    torch.testing.assert_close(load_graph(file, containers=[Bag])(TWO, Bag([ONE, TWO])).held, [ONE + 2, TWO + 2])
    assert Bag.read


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "old", "new"),
    [
        (Pair(ONE, TWO), "keel_tests.Pair", "keel_tests.Pear"),
        (Pair(ONE, TWO), "keel_tests.Pair", "keel_tests.Row"),
        (Row(ONE), '[[\\"x\\"]', '[[\\"y\\"]'),
        (Row(ONE), '[\\"note\\"]', '[\\"x\\"]'),
        (Row(ONE), "keel_tests.Row", "keel_tests.Bag"),
        (Row(ONE), "keel_tests.Row", "builtins.tuple"),
    ],
)
def test_classes_and_fields_that_are_others(given: Any, old: str, new: str, tmp_path: Path) -> None:
    file = saved(given, tmp_path / "graph.keel")

    def change(data: dict[str, Any]) -> None:
        text = json.dumps(data["trees"][0])
        assert json.dumps(old)[1:-1] in text
        data["trees"][0] = json.loads(text.replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1]))

    changed(file, change)
    with pytest.raises(KeelError, match="bad-file"):
        load_graph(file)


class Plain(NamedTuple):
    """Nobody registers it."""

    first: torch.Tensor


@pytest.mark.parametrize("given", [Plain(ONE), {(1, 2): ONE}, defaultdict(lambda: ONE, a=ONE)])
def test_what_no_process_could_read_is_not_saved(given: Any, tmp_path: Path) -> None:
    with pytest.raises(KeelError, match="bad-graph"):
        saved(given, tmp_path / "graph.keel")
    assert not (tmp_path / "graph.keel").exists()


def test_arguments_by_name_are_named_in_ascii(tmp_path: Path) -> None:
    class Named(torch.nn.Module):
        def forward(self, x: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
            return x + sum(more.values())

    program = torch.export.export(Named(), (ONE,), {"größe": ONE})
    with pytest.raises(KeelError, match=r"(?s)bad-graph.*größe: The name of a keyword argument"):
        save_graph(program, tmp_path / "graph.keel")
    program = torch.export.export(Named(), (ONE,), {"arg0": ONE, "_arg": TWO})
    save_graph(program, tmp_path / "graph.keel")
    torch.testing.assert_close(load_graph(tmp_path / "graph.keel")(ONE, arg0=ONE, _arg=TWO), 2 * ONE + TWO)
