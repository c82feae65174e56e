"""Runs of the shards of one plan, on any number of hosts, as one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keel import KeelError

from ..results.verdict import Verdict
from .journal import FILE, read, stating
from .run import Shard

PER_SHARD = ("shard",)
"""In what the heads of shards may differ."""


@dataclass(frozen=True)
class Merged:
    """``head`` is what all shards say of their run; ``missing`` are the shards that nobody gave."""

    head: Mapping[str, Any]
    verdicts: dict[str, Verdict]
    missing: tuple[Shard, ...]


def merge_shards(folders: Sequence[Path]) -> Merged:
    """Returns the verdicts of all runs. Raises KeelError[bad-option] if a folder has no run, or if the runs are not
    shards of one run.
    """
    heads: dict[Path, Mapping[str, Any]] = {}
    verdicts: dict[str, Verdict] = {}
    for folder in folders:
        if not (folder / FILE).exists():
            raise KeelError("bad-option", f"There is no run in {folder}.", do=f"Its --out folder holds {FILE}.")
        head, verdicts_of_shard, _ = read(folder / FILE)
        head = stating(folder / FILE, head, "backend", "shard")
        _compare(folder, head, heads)
        heads[folder] = head
        verdicts |= verdicts_of_shard
    shards = {Shard.read(str(head["shard"])) for head in heads.values()}
    first = next(iter(heads.values()))
    of = Shard.read(str(first["shard"])).of
    missing = tuple(s for k in range(of) if (s := Shard(k + 1, of)) not in shards)
    return Merged({**first, "shard": "1/1"}, verdicts, missing)


def _compare(folder: Path, head: Mapping[str, Any], heads: Mapping[Path, Mapping[str, Any]]) -> None:
    for other, before in heads.items():
        differ = {
            k: f"{before.get(k)} in {other}, {head.get(k)} in {folder}"
            for k in sorted({*head, *before})
            if k not in PER_SHARD and head.get(k) != before.get(k)
        }
        if Shard.read(str(head["shard"])).of != Shard.read(str(before["shard"])).of:
            differ["shard"] = f"{before['shard']} in {other}, {head['shard']} in {folder}"
        elif head["shard"] == before["shard"]:
            differ["shard"] = f"{head['shard']} in both"
        if differ:
            raise KeelError("bad-option", f"The runs in {other} and {folder} are not shards of one run.", differ)
