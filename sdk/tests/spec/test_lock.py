"""The lock says what the declarations say, is the same on every PyTorch, and never changes once released."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from keel import KeelError
from keel.spec import MEMBERS, About, Budget, Clause, Op, Requires
from keel.spec.diff import diff, next_version
from keel.spec.lock import (
    changed_since_release,
    digest,
    lock,
    locked,
    overloads,
    path_of,
    read,
    released,
    results,
    text,
    write,
)
from keel.spec.op import Family
from keel.spec.rules import DENSE, Out, like, shape_of
from keel.spec.versions import CURRENT, Version, version


def family() -> Family:
    made = Family("sample")
    made.primitive(
        "twice",
        "twice",
        doc="2 x.",
        clauses=(Clause("NaN gives NaN.", About.NONFINITE), "Integers wrap around."),
        out=(Out(like("self"), shape_of("self"), DENSE),),
        dtypes=(torch.int8, torch.float32),
        requires=(Requires("x-rank", "x has a dimension.", lambda args: True),),
        budget={torch.float32: Budget(ulps=1)},
        tags=frozenset({"pointwise"}),
    )
    made.opaque("nonce", "nonce.out", doc="A secret.", reason="Nobody may know.")

    def rule(args: object) -> tuple[()]:
        """No result
        at all.
        """
        return ()

    made.primitive("void", "void", doc="", clauses=(), out=rule)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "released.json").write_text("{}")
    return tmp_path


def test_the_lock_is_that_of_the_declarations() -> None:
    written = path_of(CURRENT).read_text()
    if written != text(lock()):
        changes = [f"{d.member}: {d.sentence}" for d in diff(json.loads(written), lock())]
        pytest.fail("\n".join(["The declarations changed. Run `keel spec lock`.", *changes[:20]]))


def test_released_locks_are_as_they_were_released() -> None:
    assert changed_since_release() == []


def test_the_version_rises_with_what_changed_since_the_last_release() -> None:
    last = max((version(v) for v in released()), default=None)
    if last is not None:
        found = diff(locked(last), lock())
        assert next_version(locked(last), found) <= CURRENT


def test_what_a_lock_says() -> None:
    data = lock(family().members.values(), Version(1, 2))
    assert data["opset"] == "1.2" and list(data["members"]) == ["nonce", "twice", "void"]
    assert {k: v for k, v in data["members"]["twice"].items() if k != "digest"} == {
        "kind": "primitive",
        "family": "sample",
        "profile": "core",
        "overloads": ["aten.twice.default"],
        "doc": "2 x.",
        "clauses": {"twice.C1": "NaN gives NaN.", "twice.C2": "Integers wrap around."},
        "results": [
            {"dtype": "dtype(self)", "shape": "shape(self)", "layout": "row-major", "exact": True, "optional": False}
        ],
        "operands": [],
        "compute": None,
        "requires": ["x has a dimension."],
        "dtypes": ["float32", "int8"],
        "decomposition": None,
        "budget": {"float32": {"ulps": 1.0}},
        "tags": ["pointwise"],
        "reason": None,
    }
    assert data["members"]["nonce"]["reason"] == "Nobody may know."
    assert data["members"]["void"]["results"] == "No result at all."
    choice = Op("cond", "primitive", "", ("higher_order.cond.default",), "", ())
    assert results(choice) == "What the call was traced with."
    assert data["digest"] == digest(data["members"])


def test_every_member_is_locked() -> None:
    assert set(lock()["members"]) == set(MEMBERS)
    assert "aten.exp.default" in overloads(CURRENT)


def test_every_primitive_says_what_type_its_results_have() -> None:
    silent = [name for name, m in lock()["members"].items() if m["kind"] == "primitive" and m["results"] is None]
    assert not silent, f"no type rule, or one without a docstring: {silent}"


def test_nothing_depends_on_the_order_of_declarations() -> None:
    members = list(family().members.values())
    assert text(lock(members)) == text(lock(members[::-1]))


def test_reading_what_was_written(folder: Path) -> None:
    new = lock(family().members.values())
    file = write(folder, new=new)
    assert file.name == f"opset-{CURRENT}.json" and read(file) == new == locked(CURRENT, folder)
    file.write_text(file.read_text().replace("Integers wrap", "Integers warp"))
    with pytest.raises(KeelError, match="not the lock of an opset"):
        read(file)
    with pytest.raises(KeelError, match=r"\[opset-version\].*knows no opset 7.3"):
        locked(Version(7, 3), folder)


def test_a_member_that_was_changed_under_its_old_digest_is_found(folder: Path) -> None:
    forged = lock(family().members.values())
    name = next(iter(forged["members"]))
    forged["members"] |= {name: {**forged["members"][name], "doc": "Another one."}}
    file = folder / "forged.json"
    file.write_text(text({**forged, "digest": digest(forged["members"])}))
    with pytest.raises(KeelError, match=f"members.{name}.digest: It is not that of the member"):
        read(file)


def test_a_released_lock_never_changes(folder: Path) -> None:
    first = lock(family().members.values())
    file = write(folder, new=first, release=True)
    assert released(folder) == {str(CURRENT): sha256(file.read_bytes()).hexdigest()}
    write(folder, new=first)
    with pytest.raises(KeelError, match="never changes"):
        write(folder, new=lock([*family().members.values()][1:]))
    assert read(file) == first and changed_since_release(folder) == []
    file.write_text(text(lock([])))
    assert changed_since_release(folder) == [f"Opset {CURRENT} is released, and {file.name} is not what was released."]
    file.unlink()
    assert changed_since_release(folder) == [f"Opset {CURRENT} is released, and {file.name} is gone."]
