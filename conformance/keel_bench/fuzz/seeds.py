"""Real files to begin with: graphs that were saved, kernels, and what runs and measurements write."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

import keel
from keel_conformance.certificate.manifest import ABOUT
from keel_conformance.results.verdict import STATUSES


class Everything(nn.Module):
    """Sizes that are symbols, containers, arguments by name, a parameter, a buffer that is written, an inner graph."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, tensors: Any, *, scale: torch.Tensor) -> Any:
        self.calls += 1
        y = torch.cond(tensors["a"].sum() > 0, lambda v: v.exp(), lambda v: v.sin(), (x,))
        return OrderedDict(y=(y @ self.weight) * scale, n=[torch.cat([x, x]).to(torch.float64), tensors["q"][0]])


class DataDependent(nn.Module):
    """A size that only a run tells, and several results of one call."""

    def forward(self, x: torch.Tensor) -> Any:
        return x.nonzero().sum(0), torch.var_mean(x, 0)


def graphs() -> list[bytes]:
    """Exported programs."""
    tensors = defaultdict(list, a=torch.ones(2), q=deque([torch.ones(3)], maxlen=2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(
            Everything(),
            (torch.ones(8, 4), tensors),
            {"scale": torch.ones(4)},
            dynamic_shapes={
                "x": {0: torch.export.Dim("rows", min=2, max=64)},
                "scale": None,
                "tensors": defaultdict(list, a=None, q=deque([None], maxlen=2)),
            },
        )
        rows = {0: torch.export.Dim("rows", min=2, max=64)}
        result = torch.export.export(DataDependent(), (torch.ones(3, 4),), dynamic_shapes={"x": rows})
        return [_saved(g) for g in (program, result)]


def _saved(graph: Any) -> bytes:
    with tempfile.TemporaryDirectory(prefix="keel-fuzz-") as folder:
        file = Path(folder, "graph.keel")
        keel.serialize.save_graph(graph, file)
        return file.read_bytes()


KERNELS = (
    """kernel softmax(in0: f32[s0*s1]) -> (out0: f32[s0*s1]) where s0, s1:
  parallel i0 < s0:
    reduce r0 < s1:
      %0 = load in0[s1*i0 + r0]
      %1 = reduce max %0
    reduce r1 < s1:
      %2 = load in0[s1*i0 + r1]
      %3 = sub %2 %1
      %4 = exp %3
      %5 = reduce sum %4
    parallel i1 < s1:
      %6 = load in0[s1*i0 + i1]
      %7 = sub %6 %1
      %8 = exp %7
      %9 = div %8 %5
      store out0[s1*i0 + i1] %9
""",
    """kernel gather(in0: f32[12], in1: i64[4], trouble: inout i64[2]) -> (out0: f32[4]):
  parallel i0 < 4:
    %0 = load in1[i0]
    %1 = check trouble[1]: %0 < 12 wrap
    %2 = load in0[(%1 < 12)]
    %3 = const 0.5 : f32
    %4 = mul %2 %3
    %5 = position 3*(i0 // 2) + i0 % 2
    %6 = cast %5 : f32
    %7 = add %4 %6
    store out0[i0] %7
""",
    """kernel view(in0: f32[s0**2 + 2*s0 + 1]) -> (out0: f32[max(s0 // 2, 1)]) where s0, s1 >= 0, s2 any:
  parallel i0 < max(s0 // 2, 1):
    %0 = load in0[(s1 + s2 + i0) % (s0 + 1)]
    store add out0[i0] %0
""",
)


def kernels() -> list[bytes]:
    return [text.encode() for text in KERNELS]


def sheets() -> list[bytes]:
    cost = keel.Cost(
        flops={torch.float32: 1e9},
        scalars=1e8,
        bandwidth=1e9,
        link=keel.cost.Link(1e6, 1e-3),
        weights={"sort": 2.0},
        passes={"convolution": 3.0},
        seconds={"aten.mm": 0.5},
        doubt=0.3,
        patterns=(keel.cost.Pattern(("aten.mm", "pointwise")), keel.cost.Pattern(("sort",), 1e-3)),
    )
    plain = keel.Cost(flops={torch.float32: 1e9}, scalars=1e8, bandwidth=1e9)
    both = {"acme": cost.as_json(), "cpp": plain.as_json()}
    return [json.dumps({"machine": {"threads": 2}, "sheets": both}).encode()]


WAIVERS = b"""[[waiver]]
case = "neg/i64/*"
clause = "neg.C1"
reason = "It rounds twice."
url = "https://example.org/1"
owner = "me"
expires = 2999-01-01

[[waiver]]
case = "add/f16/[a-c]*"
clause = "oracle:ulp"
reason = 'no f16 "adder"'
url = "https://example.org/2"
owner = "ada"
expires = 2027-06-30
expect = "fail"
backend = "acme*"
"""


def waivers() -> list[bytes]:
    return [WAIVERS]


HEAD = {
    "backend": "acme",
    "shard": "1/1",
    "cases": 2,
    "digest": "0" * 64,
    "torch": "2.13.0",
    "torch-keel": "0.1.0",
    "python": "3.11.7",
    "profile": "core",
    "tier": "smoke",
    "seed": 0,
    "ops": ["neg"],
}


def logs() -> list[bytes]:
    figures = {
        "ulps": 1.5,
        "ratio": float("inf"),
        "masked": 0.0,
        "index": [0, 1],
        "wrong": 3,
        "histogram": [1] * 12,
        "fault": "result shared",
        "result": 1,
        "call": 0,
        "other": 0,
        "other_call": 1,
    }
    verdicts = [
        {
            "case": f"neg/f32/{k}",
            "status": s,
            "oracle": "ulp",
            "sentence": "At (0,) it is 1, not 2.",
            "clause": "neg.C1",
            "figures": figures,
            "seconds": 0.25,
        }
        for k, s in enumerate(STATUSES)
    ]
    lines = [{"run": HEAD}, {"begin": [v["case"] for v in verdicts]}, {"end": verdicts[:7]}, {"end": verdicts[7:]}]
    return [_lines(lines), _lines(lines[:2])]


def _lines(entries: Sequence[Any]) -> bytes:
    return "".join(json.dumps(e) + "\n" for e in entries).encode()


def certificates() -> list[bytes]:
    manifest = {
        "format": 3,
        "made": "2026-11-24T12:00:00+00:00",
        "subject": "acme",
        "run": {k: HEAD[k] for k in ABOUT},
        "conforms": True,
        "totals": dict.fromkeys(STATUSES, 0),
        "suite": "2" * 64,
        "compiler": "3" * 64,
        "specification": {"lock": "0" * 64, "contract": "1" * 64},
        "plugin": {"package": "acme", "distribution": "acme", "version": "1", "files": "4" * 64},
        "torch": {"version": "2.13.0", "commit": "x", "files": "5" * 64},
        "environment": {"torch": "2.13.0", "cores": 2},
        "levels": [{"level": "inference-1", "state": "lacks", "required": 63, "held": 4}],
        "waivers": None,
        "waived": [],
        "verdicts": "6" * 64,
        "files": {"log.jsonl": "7" * 64},
        "seal": "8" * 64,
    }
    return [json.dumps(manifest, indent=1).encode()]


def reports() -> list[bytes]:
    totals = [{"status": s, "cases": k, "of": 100, "share": k / 100, "bad": False} for k, s in enumerate(STATUSES)]
    return [
        json.dumps(
            {"format": 1, "subject": "acme", "run": {"digest": "0" * 64}, "totals": totals, "verdicts": []}
        ).encode()
    ]


def measurements() -> list[bytes]:
    job = {"universe": "opinfo", "name": "sin", "samples": 2}
    row = {"samples": 2, "traced": 2, "ends_in": {"aten.sin.default": 2}}
    return [
        _lines(
            [
                {"job": job, "outcome": {"row": row, "failure": "", "doing": "", "seconds": 0.5, "end": ""}},
                {
                    "job": {**job, "name": "cos"},
                    "outcome": {"row": None, "failure": "It died.", "doing": "x", "seconds": 1.0, "end": "SIGABRT"},
                },
            ]
        )
    ]
