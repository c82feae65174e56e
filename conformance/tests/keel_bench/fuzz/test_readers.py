"""Every module that reads files or bytes has a loader that is tried with damaged files, or a reason for having none."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from keel_bench.fuzz.loaders import LOADERS

ROOT = Path(__file__).parents[4]
READERS = {"open", "read_text", "read_bytes", "loads", "genops", "decompress", "ZipFile", "mmap"}
"""Functions and methods that read files or bytes."""
OF_DOCUMENTS = {"bytes_of", "text_of", "parsed"}
"""Those of ``keel.documents``; other modules have functions of these names."""
WHOLE = {"torch.load", "torch.export.load"}
WRITERS = {"self.open", "emitter.open", "self.emitter.open"}
"""Methods that open a block of code that is written."""

TRIED: Mapping[str, str] = {
    "keel.artifact.compiled_graph": "package saved",
    "keel.artifact.saved_graph": "saved",
    "keel.commands": "kernel",
    "keel.cost.sheet": "sheets",
    "keel.documents": "graph repro inspect lock sheets waivers log needs certificate signature registry key report",
    "keel.file_readers": "kernel",
    "keel.packages.load_package": "package",
    "keel.packages.package_file": "inspect package",
    "keel.packages.package_manifest": "inspect package",
    "keel.repro_folder": "repro",
    "keel.serialize.archive": "graph",
    "keel.serialize.load": "graph",
    "keel.serialize.pickled": "graph",
    "keel.serialize.tree_specs": "graph package",
    "keel.spec.lock": "lock",
    "keel_bench.calibrate": "sheets",
    "keel_conformance.certificate.certificate_list": "registry",
    "keel_conformance.certificate.manifest": "waivers certificate",
    "keel_conformance.certificate.signing": "signature key",
    "keel_conformance.certificate.verify": "certificate log report",
    "keel_conformance.harness.journal": "log shards",
    "keel_conformance.harness.waivers": "waivers",
    "keel_conformance.levels.needs": "needs",
    "keel_conformance.workers.result_log": "measurement",
}
"""The loaders of the modules that read what a stranger may have written."""

CACHE = (
    "It is in the cache, a folder of the user alone with checksums, which keel_bench.cache tries with damaged files."
)
OWN = "It is part of the installed package or of the repository."
PROCESS = "It was written by a process that this one started, which runs the user's programs."
SYSTEM = "It is a file of the operating system."
HASHED = "Nothing is made of its content but a hash."
RESULTS = "It shows results of a measurement that a maintainer made."
PACKAGES = "It is part of an installed package, whose code is imported too."

TRUSTED: Mapping[str, str] = {
    "keel.cache.folder": CACHE,
    "keel.cache.library": CACHE,
    "keel.cache.store": CACHE,
    "keel.cache.toolchain": HASHED,
    "keel.command_help": PACKAGES,
    "keel.comparison_page": OWN,
    "keel.entry_points": PACKAGES,
    "keel.explain_page": OWN,
    "keel.launcher.native": OWN,
    "keel.minify.reduction_report": SYSTEM,
    "keel.minify.trial_process": PROCESS,
    "keel.named_models": "PyTorch reads the programs that it saved. Its files are as safe as PyTorch makes them.",
    "keel.new": OWN,
    "keel.packages.package": HASHED,
    "keel.profile.profile_page": OWN,
    "keel.profile.profiled_steps": PROCESS,
    "keel.quarantine.child": PROCESS,
    "keel.quarantine.contain": PROCESS,
    "keel.quarantine.first_import": PROCESS,
    "keel.spec.examples": OWN,
    "keel.spec.pages": OWN,
    "keel.spec_commands": OWN,
    "keel.standalone": "load_package has read the file before, and nothing is made of its bytes.",
    "keel_bench.backend_page": OWN,
    "keel_bench.cache": CACHE,
    "keel_bench.debugging.debug_case": PROCESS,
    "keel_bench.demo": OWN,
    "keel_bench.distributed.distributed_page": RESULTS,
    "keel_bench.distributed.rank_process": PROCESS,
    "keel_bench.distributed.step_trace": PROCESS,
    "keel_bench.distributed.train_together": PROCESS,
    "keel_bench.fallbacks": PROCESS,
    "keel_bench.memory_traffic": PROCESS,
    "keel_bench.nightlies": OWN,
    "keel_bench.packaged_models.packaged_call": PROCESS,
    "keel_bench.packaged_models.round_trip": PROCESS,
    "keel_bench.placements.cost_sheets": RESULTS,
    "keel_bench.releasable": OWN,
    "keel_bench.run_time": PROCESS,
    "keel_bench.speed.contender_process": SYSTEM,
    "keel_bench.speed.speed_page": RESULTS,
    "keel_bench.warm_start.slow_plugin": CACHE,
    "keel_bench.worker": PROCESS,
    "keel_conformance.cases.anchors": OWN,
    "keel_conformance.cases.attribute_variants": PROCESS,
    "keel_conformance.cases.clause_coverage": OWN,
    "keel_conformance.cases.collect_calls": OWN,
    "keel_conformance.cases.drop_trivial": SYSTEM,
    "keel_conformance.cases.invalid_calls": OWN,
    "keel_conformance.certificate.hashes": HASHED,
    "keel_conformance.harness.backend_worker": SYSTEM,
    "keel_conformance.harness.judge_worker": PROCESS,
    "keel_conformance.harness.preload": PROCESS,
    "keel_conformance.levels.level": OWN,
    "keel_conformance.programs.observation": PROCESS,
    "keel_conformance.programs.process_group": SYSTEM,
    "keel_conformance.programs.python_values": PROCESS,
    "keel_conformance.report": SYSTEM,
    "keel_conformance.reporting.html_report": PROCESS,
    "keel_conformance.reporting.json_report": OWN,
    "keel_conformance.witnesses.find_anchors": OWN,
    "keel_conformance.workers.pool": PROCESS,
    "keel_conformance.workers.spawn": PROCESS,
    "keel_selftest.robustness": PROCESS,
    "keel_cpp.build": SYSTEM,
    "keel_cpp.emitter": OWN,
    "keel_cpp.probe": SYSTEM,
    "keel_onnxruntime": "It is a part of a package, which is trusted, or of the cache. ONNX Runtime reads the model.",
    "keel_opencl.build": OWN,
    "keel_triton.binaries": CACHE,
    "keel_triton.launch_data": "It is a part of a package, which is trusted, and is read where there is a GPU.",
    "keel_triton.native_launch": OWN,
}
"""Why no loader tries the other modules."""


def modules() -> dict[str, Path]:
    """The modules of the SDK, of the suite and of the reference backends, without tests and this benchmark itself."""
    made = {}
    for top in ("sdk/keel", *(str(p.relative_to(ROOT)) for p in ROOT.glob("conformance/keel_*")), *backends()):
        for path in (ROOT / top).rglob("*.py"):
            parts = (ROOT / top).name, *path.relative_to(ROOT / top).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if not name.startswith("keel_bench.fuzz"):
                made[name] = path
    return made


def backends() -> list[str]:
    return [str(p.relative_to(ROOT)) for p in ROOT.glob("reference_backends/keel_*")]


def is_reading(path: Path) -> bool:
    """True if a module calls one of the functions that read."""
    text = path.read_text()
    known = READERS | (OF_DOCUMENTS if "documents" in text else set())
    if not any(f"{word}(" in text for word in (*known, *WHOLE)):
        return False
    calls = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    named = {ast.unparse(f) for f in calls if isinstance(f, ast.Name | ast.Attribute)} - WRITERS
    return bool({name.rpartition(".")[2] for name in named} & known or named & WHOLE)


def test_each_reader_is_tried_or_has_a_reason() -> None:
    reading = {name for name, path in modules().items() if is_reading(path)}
    assert sorted(reading - {*TRIED, *TRUSTED}) == []
    assert sorted({*TRIED, *TRUSTED} - reading) == []


def test_each_loader_is_of_a_reader() -> None:
    named = {loader for loaders in TRIED.values() for loader in loaders.split()}
    assert named == {*LOADERS} - {"runtime"}  # which is C++
