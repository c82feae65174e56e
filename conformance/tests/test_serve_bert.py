"""The example that serves BERT from C++, as its page says to build it, gives what the package gives in Python."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
from pathlib import Path

import pytest
import torch

import keel
from keel_conformance.models import allow_torchvision

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "serve_bert"
PAGE = ROOT / "docs" / "how" / "run-without-python.md"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    allow_torchvision()
    path = tmp_path_factory.mktemp("serve") / "bert.keel"
    runpy.run_path(str(EXAMPLE / "package_bert.py"))["main"](str(path))
    return path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
def test_bert_is_served_without_python(package: Path) -> None:
    sources, serve = Path(keel.runtime_sources()), package.with_name("serve")
    files = [EXAMPLE / "serve.cpp", *sources.glob("*.cpp")]
    subprocess.run(
        ["g++", "-std=c++17", "-O0", f"-I{sources}", "-o", serve, *files, "-ldl", "-lpthread"], check=True, timeout=600
    )
    environment = {**os.environ, "KEEL_LIBTORCH": str(Path(torch.__file__).parent / "lib")}
    requests = [[1, 2, 3, 4], [5, 6, 7, 8, 9, 10, 11], [1]]
    text = "".join(" ".join(map(str, tokens)) + "\n" for tokens in requests)
    ran = subprocess.run(
        [serve, package], input=text, capture_output=True, text=True, env=environment, check=True, timeout=600
    )
    loaded, lines = keel.load_package(package, trusted=True), ran.stdout.splitlines()
    for tokens, line in zip(requests[:2], lines[:2], strict=True):
        pooled = loaded.call_flat([torch.tensor([tokens])])[-1]
        assert line == " ".join(f"{number:.6f}" for number in pooled[0, :3].tolist())
    assert lines[2].startswith("error: ") and len(lines) == 3


def test_the_page_shows_the_example() -> None:
    (shown,) = re.findall(r"```cpp\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert shown == (EXAMPLE / "serve.cpp").read_text()
