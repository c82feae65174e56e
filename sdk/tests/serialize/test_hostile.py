"""Saved graphs that were made to do harm: each is refused as a bad file, with the place, soon, and nothing ran."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import shutil
import sys
import zipfile
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from keel import KeelError
from keel.serialize import load_graph, save_graph

from ..soon import soon
from .archives import changed, data_of, parts_of, put

pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
CODE = "x=__import__('pathlib').Path('{}').touch()"


class Model(nn.Module):
    """Symbolic sizes, arguments by name, containers, a parameter, a buffer that is written, and an inner graph."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, given: Any, *, scale: torch.Tensor) -> Any:
        self.calls += 1
        y = torch.cond(given["a"].sum() > 0, lambda v: v.exp(), lambda v: v.sin(), (x,))
        return OrderedDict(y=(y @ self.weight) * scale, n=[torch.cat([x, x]).to(torch.float64), given["q"][0]])


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("hostile") / "good.keel"
    given = defaultdict(list, a=torch.ones(2), q=deque([torch.ones(3)], maxlen=2))
    program = torch.export.export(
        Model(),
        (torch.ones(8, 4), given),
        {"scale": torch.ones(4)},
        dynamic_shapes={
            "x": {0: torch.export.Dim("rows", min=2, max=64)},
            "scale": None,
            "given": defaultdict(list, a=None, q=deque([None], maxlen=2)),
        },
    )
    save_graph(program, file)
    return file


@pytest.fixture
def file(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copyfile(good, tmp_path / "graph.keel"))


def refused(file: Path, why: str = "KeelError", code: str = "bad-file") -> None:
    before = {*sys.modules}
    with soon(), pytest.raises(KeelError, match=why) as raised:
        load_graph(file)
    assert raised.value.code == code, raised.value
    assert not [p for p in file.parent.iterdir() if p != file], "something ran"
    assert not {m for m in {*sys.modules} - before if not m.startswith(("torch", "keel", "sympy"))}


@pytest.mark.slow
def test_what_is_changed_below_is_good(file: Path) -> None:
    given = defaultdict(list, a=torch.ones(2), q=deque([torch.ones(3)], maxlen=2))
    loaded = load_graph(file)
    out = loaded(torch.ones(5, 4), given, scale=torch.ones(4))
    torch.testing.assert_close(out["y"], torch.full((5, 4), 4 * torch.e))
    assert type(out) is OrderedDict and loaded.b_calls == 1


# -- names ------------------------------------------------------------------------------------------------------------


def renamed(data: Any, old: str, new: str) -> Any:
    """The same data with another name wherever one stands, in texts within texts too."""
    if isinstance(data, str):
        within = [json.dumps(json.dumps(name))[1:-1] for name in (old, new)]
        return new if data == old else data.replace(*within)
    if isinstance(data, list):
        return [renamed(v, old, new) for v in data]
    if isinstance(data, dict):
        return {renamed(k, old, new): renamed(v, old, new) for k, v in data.items()}
    return data


NAMES: dict[str, Callable[[dict[str, Any]], str]] = {
    "a symbol": lambda data: next(iter(data["symbols"])),
    "an argument": lambda data: data["graph"]["inputs"][0]["name"],
    "an argument by name": lambda data: "scale",
    "a constant": lambda data: data["graph"]["constants"][0]["name"],
    "a value": lambda data: data["graph"]["nodes"][0]["name"],
    "an inner graph": lambda data: next(iter(data["graph"]["graphs"])),
    "an operator": lambda data: data["graph"]["nodes"][0]["op"],
    "a parameter": lambda data: next(iter(data["graph"]["nodes"][-1]["args"])),
}
BAD = ("x: print(1)", "x\n  import os", "__import__", "class", "self", "x y", "", "é", "x" * 300, "1x", "x;y", "a.b")


MAY_BE = {("a parameter", "self"), ("a parameter", "__import__")}
"""Names of arguments of a call, which are held to those that the operator has."""


@pytest.mark.parametrize(("what", "bad"), [(w, b) for w in NAMES for b in ("code", *BAD) if (w, b) not in MAY_BE])
def test_names_that_are_no_names(what: str, bad: str, file: Path) -> None:
    bad = CODE.format(file.parent / "ran") if bad == "code" else bad
    old = NAMES[what](data_of(file))

    def change(data: dict[str, Any]) -> None:
        data.update(renamed(data, old, bad))

    changed(file, change)
    refused(file, code="opset-version" if what == "an operator" and bad == "a.b" else "bad-file")


@pytest.mark.parametrize("name", ["forward", "graph", "training", "_parameters", "_in_spec", "meta", "to"])
def test_constants_called_as_a_module_is(name: str, file: Path) -> None:
    changed(file, lambda data: data.update(renamed(data, data["graph"]["constants"][0]["name"], name)))
    refused(file, "A graph module already has")


def test_names_by_which_python_functions_are_given_arguments(file: Path) -> None:
    code = CODE.format(file.parent / "ran")
    changed(
        file,
        lambda data: data["graph"]["nodes"].append(
            {"name": "evil", "op": "python.max", "given": [1, 2], "named": {code: 1}, "out": {"int": 1}}
        ),
    )
    refused(file, "is not a valid name")


# -- what is named ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"dtype": "_dynamo"}, "not a dtype"),
        ({"dtype": "onnx"}, "not a dtype"),
        ({"layout": "load"}, "not a layout"),
        ({"memory_format": "hub"}, "not a memory format"),
        ({"device": "cpu'; import os"}, "not a device"),
        ({"operator": "os.system"}, "It is not a member"),
        ({"graph": "nobody"}, "does not name an inner graph of this one"),
        ({"object": "x"}, "is not a kind of argument"),
        ({"dict": [[{"tuple": []}, 1]]}, "It is not a key"),
        ({"node": "later"}, "does not name an earlier value"),
        ({"slice": [1]}, "not 3"),
        ({"float": "1"}, "not 'inf'"),
        ({"complex": [{"complex": [1, 2]}, 0]}, "It is not a number"),
        (1 << 70, "an integer of more than 64 bits"),
    ],
)
def test_arguments_that_are_none(value: Any, why: str, file: Path) -> None:
    changed(file, lambda data: data["graph"]["nodes"][0].update(args={"self": value}))
    refused(file, why, code="opset-version" if "member" in why else "bad-file")


def test_an_operator_as_a_result(file: Path) -> None:
    """PyTorch 2.11 would write its address into the source of the graph."""
    changed(file, lambda data: data["graph"]["results"].append({"operator": "higher_order.cond.default"}))
    refused(file, "Only calls take operators")


@pytest.mark.parametrize(
    "op", ["inline_asm_elementwise", "call_torchbind", "triton_kernel_wrapper_functional", "print"]
)
def test_operators_that_are_code(op: str, file: Path) -> None:
    changed(
        file,
        lambda data: data["graph"]["nodes"].append(
            {"name": "evil", "op": f"higher_order.{op}.default", "given": ["x"], "named": {}, "out": None}
        ),
    )
    refused(file, f"It calls higher_order.{op}.default")
    changed(
        file,
        lambda data: data["graph"]["nodes"][-1].update(
            op="higher_order.cond.default", given=[{"operator": f"higher_order.{op}.default"}]
        ),
    )
    refused(file, f"It calls higher_order.{op}.default")


def tree_of(held: str, context: Any, children: int = 1) -> str:
    leaf = {"type": None, "context": None, "children_spec": []}
    return json.dumps([1, {"type": held, "context": context, "children_spec": [leaf] * children}])


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        (
            tree_of(
                "collections.defaultdict",
                {"default_factory_module": "antigravity", "default_factory_name": "fly", "dict_context": ["a"]},
            ),
            "default_factory_module: It is 'antigravity'",
        ),
        (
            tree_of(
                "collections.defaultdict",
                {"default_factory_module": "builtins", "default_factory_name": "exec", "dict_context": ["a"]},
            ),
            "names a container that files do not have",
        ),
        (
            tree_of(
                "collections.defaultdict",
                {"default_factory_module": "builtins", "default_factory_name": "list", "dict_context": ["a"]},
                2,
            ),
            "It has 2 values and 1 keys",
        ),
        (tree_of("collections.namedtuple", "os.stat_result"), "a container that this process has not registered"),
        (
            tree_of("collections.namedtuple", "collections.defaultdict"),
            "a container that this process has not registered",
        ),
        (tree_of("antigravity.Flight", "null"), "a container that this process has not registered"),
        (tree_of("builtins.dict", "[[1]]"), "The keys of a dict must be texts or numbers"),
        (tree_of("builtins.dict", '["a", "a"]', 2), "each once"),
        (tree_of("builtins.tuple", "null", 7), "It has 7 leaves for"),
        (tree_of("builtins.list", "null", 40), "It has 40 leaves"),
        ("[2, {}]", "protocol version is unknown"),
        ("{", "It is not JSON"),
        ("[" * 100_000, "nested more than"),
        (json.dumps([1, {"type": "builtins.tuple"}]), "It lacks context"),
    ],
)
@pytest.mark.parametrize("which", [0, 1])
def test_trees_that_name_what_they_may_not(tree: str, why: str, which: int, file: Path) -> None:
    def change(data: dict[str, Any]) -> None:
        data["trees"][which] = tree

    changed(file, change)
    refused(file, why)


# -- sizes ------------------------------------------------------------------------------------------------------------


def tower(levels: int) -> Any:
    return ["Pow", 10, tower(levels - 1)] if levels else 10


SUMS = [["Add", "SIZE", i] for i in range(1, 30)]


@pytest.mark.parametrize(
    ("size", "why"),
    [
        (tower(3), "more than 4096 bits"),
        (["Pow", 10, 10**15], "more than 4096 bits"),
        (["LShift", 1, 10**12], "more than 4096 bits"),
        (["FloatPow", 10.0, 1e300], "more than 4096 bits"),
        (["Pow", "SIZE", ["Pow", 2, 40]], "more than 4096 bits"),
        (["Mul", *SUMS], "more than 512 terms"),
        (["Pow", ["Add", "SIZE", 1], 30], "more than 512 terms"),
        (["Add", *range(100)], "more than 65"),
        (["Max", *[["Add", *["SIZE"] * 60]] * 60], "more than 512 parts"),
        ([], "is not a size|It is a list"),
        (["exec", 1], "is not a size"),
        (["Add"], "has no arguments"),
        ([["Add"], 1], "not a text"),
        ("nobody", "'nobody' is not a size"),
        (None, "not a list"),
        (1 << 65, "more than 64 bits"),
        (["FloorDiv", 1, 0], "bad-file"),
        (["Mod", 7, 0], "bad-file"),
        (["Rational", 1, 0], "bad-file"),
        (-5, "bad-file"),
        (["Where", 1, 2, 3], "bad-file"),
        (["Not", "SIZE"], "bad-file"),
    ],
)
def test_sizes_that_grow_or_are_none(size: Any, why: str, file: Path) -> None:
    symbol = next(iter(data_of(file)["symbols"]))

    def filled(value: Any) -> Any:
        return [filled(v) for v in value] if isinstance(value, list) else symbol if value == "SIZE" else value

    def change(data: dict[str, Any]) -> None:
        data["graph"]["nodes"][-1]["out"]["shape"][0] = filled(size)

    changed(file, change)
    refused(file, why)


# -- the archive ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_archives_that_unpack_to_more(file: Path) -> None:
    parts = parts_of(file)
    put(file, {**parts, "graph.json": b" " * (80 << 20)})
    refused(file, "graph.json: It has 83886080 bytes, more than 67108864")
    whole = file.read_bytes()
    lying = whole.replace((80 << 20).to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    assert lying != whole
    file.write_bytes(lying)
    refused(file)


def test_archives_with_other_members(file: Path) -> None:
    parts = parts_of(file)
    put(file, {**parts, "../../evil.py": b"import os"})
    refused(file, "It has members other than graph.json and constants.pt")
    put(file, {f"{i}": b"" for i in range(5000)})
    refused(file, "more than 4 members")
    put(file, {"graph.json": parts["graph.json"]})
    refused(file, "It has members other")
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(file, "w") as archive:
        for _ in range(2):
            archive.writestr("graph.json", parts["graph.json"])
    refused(file, "Two members have one name")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("graph.json", parts["graph.json"])
    refused(file, "compressed by a method")


def test_constants_that_unpack_to_more(file: Path) -> None:
    """A small file whose constants are packed, once or twice, or whose members lie in each other."""
    parts, held = parts_of(file), io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as inner:
        for number in range(20):
            inner.writestr(f"archive/data/{number}", bytes(1 << 22))
    put(file, {**parts, "constants.pt": held.getvalue()})
    refused(file, "Its members have more bytes than the")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**parts, "constants.pt": held.getvalue()}.items():
            archive.writestr(name, content)
    refused(file, "Its members have more bytes than the|compressed by a method")
    with zipfile.ZipFile(held := io.BytesIO(), "w") as inner:
        inner.writestr("archive/data/0", bytes(1 << 16))
        for number in range(1, 20):  # each row of the table leads to the same bytes
            inner.filelist.append(row := copy.copy(inner.filelist[0]))
            row.filename = f"archive/data/{number}"
    put(file, {**parts, "constants.pt": held.getvalue()})
    refused(file, "Its members have more bytes than the")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"[" * 1_000_000, "nested more than"),
        (b"1" * 10_000, "Exceeds the limit"),
        (b"\xff", "not UTF-8 text"),
        (b'{"keel": NaN}', "NaN is not a JSON number"),
        (b'{"a": 1, "a": 2}', "occurs twice"),
        (b"null", "It is null, not an object"),
        (b'{"keel": "graph", "format": 99999999999999999999}', "is of format an integer of more than 64 bits"),
    ],
)
def test_texts_that_are_no_graph(text: bytes, why: str, file: Path) -> None:
    put(file, {**parts_of(file), "graph.json": text})
    refused(file, why, code="opset-version" if "of format" in why else "bad-file")


def test_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(KeelError, match="There is no file"):
            load_graph(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(KeelError, match="There is no file"):
        load_graph(tmp_path / "pipe")
    (tmp_path / "pipe").unlink()
    (tmp_path / "empty").touch()
    refused(tmp_path / "empty", "not a complete zip archive")


# -- constants --------------------------------------------------------------------------------------------------------


class Evil:
    """What a pickle can call."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], tuple(self.call[1:])


def with_pickle(file: Path, change: Callable[[bytes], bytes]) -> None:
    """The same file with other instructions in ``data.pkl``."""
    parts = parts_of(file)
    inner = Path(f"{file}.inner")
    inner.write_bytes(parts["constants.pt"])
    found = parts_of(inner)
    name = next(n for n in found if n.endswith("data.pkl"))
    put(inner, {**found, name: change(found[name])})
    put(file, {**parts, "constants.pt": inner.read_bytes()})
    inner.unlink()


@pytest.mark.parametrize(
    "call",
    [
        (os.system, "touch ran"),
        (eval, "1"),
        (torch.load, "x"),
        (torch.hub.load, "a", "b"),
        (OrderedDict, [("a", 1)]),
        (getattr, "x", "nn"),
    ],
)
def test_pickles_that_call(call: tuple[Any, ...], file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    for protocol in (2, 4):
        with_pickle(file, lambda _, protocol=protocol: pickle.dumps({"p_weight": Evil(*call)}, protocol))
        refused(file, "constants.pt: torch.save did not write it")


def towers(levels: int) -> bytes:
    """Tuples of tuples that would take for ever to be hashed or shown."""
    return b"\x80\x02}X\x01\x00\x00\x00aK\x01K\x01\x86" + b"2\x86" * levels + b"s."


@pytest.mark.parametrize(
    "code",
    [
        b"",
        b".",
        b"\x80\x02}q\x00.",
        b"\x80\x02K\x01.",
        b"(" * 100_000 + b".",
        b"0.",
        b"\x80\x02}r\xff\xff\xff\xff.",
        b"\x80\x02}h\x09.",
        b"\x80\x02)t.",
        b"\x80\x02\x8b\xff\xff\xff\x7f.",
        b"I" + b"9" * 5000 + b"\n.",
        b"(lp0\n.",
        towers(60),
        b"\x80\x02}" + b"K\x01K\x01\x86" + b"q\x00h\x00h\x00\x86" * 60 + b"K\x01s.",
        b"R.",
        b"ccollections\nOrderedDict\n)R.",
    ],
)
def test_pickles_that_are_damaged(code: bytes, file: Path) -> None:
    with_pickle(file, lambda _: code)
    refused(file, "constants")


@pytest.mark.slow
def test_pickles_that_go_on(file: Path) -> None:
    for code in (b"N" * (1 << 25), tensors_of_a_long_shape(5000)):
        with_pickle(file, lambda _, code=code: code)
        refused(file, "constants")


def tensors_of_a_long_shape(count: int) -> bytes:
    """Tensors, one in another's place, each of the sizes that the letters of one long text are."""
    text = b"X" + (1 << 20).to_bytes(4, "little") + b"a" * (1 << 20) + b"q\x01"
    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ"
    tensor = b"X\x01\x00\x00\x00kctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00h\x01h\x01\x89}tRs"
    return b"\x80\x02}" + text + b"K\x00s" + tensor * count + b"."


@pytest.mark.parametrize("kind", ["shape", "device", "dtype"])
def test_constants_that_are_not_what_the_graph_says(kind: str, file: Path) -> None:
    def change(data: dict[str, Any]) -> None:
        out = next(c for c in data["graph"]["constants"] if c["name"] == "p_weight")["out"]
        out.update({"shape": {"shape": [4, 5]}, "device": {"device": "meta"}, "dtype": {"dtype": "int32"}}[kind])

    changed(file, change)
    refused(file, "p_weight does not have the type")


@pytest.mark.parametrize("count", [8, 200, 2**30])
def test_tensors_that_leave_their_memory(count: int, file: Path) -> None:
    def change(code: bytes) -> bytes:
        size = b"K\x04K\x04\x86"  # the shape (4, 4)
        assert size in code
        return code.replace(size, b"K\x04J" + count.to_bytes(4, "little") + b"\x86", 1)

    with_pickle(file, change)
    refused(file, "It ends at byte")


def test_constants_of_other_forms(file: Path, tmp_path: Path) -> None:
    for held in (
        {"p_weight": [torch.ones(4, 4)]},
        {"p_weight": torch.ones(4, 4).to_sparse()},
        [torch.ones(4, 4)],
        {"other": torch.ones(4, 4)},
        {"p_weight": nn.Linear(4, 4)},
        {0: torch.ones(4, 4)},
    ):
        content = io.BytesIO()
        torch.save(held, content)
        put(file, {**parts_of(file), "constants.pt": content.getvalue()})
        refused(file, "constants")
