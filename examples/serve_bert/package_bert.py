"""Packages a BERT for any number of tokens: ``python package_bert.py OUT [NAME]``, where NAME is a model of Hugging
Face; without it, a small BERT with random weights is packaged.
"""

from __future__ import annotations

import sys

import torch
from transformers import BertConfig, BertModel

import keel


def model_of(name: str | None) -> torch.nn.Module:
    """The model of a name, or a small one."""
    if name is not None:
        return BertModel.from_pretrained(name).eval()
    torch.manual_seed(0)
    small = BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=1000
    )
    return BertModel(small).eval()


def main(out: str, name: str | None = None) -> None:
    """Writes the package."""
    tokens = torch.export.Dim("tokens", min=2, max=512)
    program = torch.export.export(
        model_of(name), (torch.zeros(1, 16, dtype=torch.long),), dynamic_shapes={"input_ids": {1: tokens}}, strict=False
    )
    keel.package(program, out, backends=["cpp"], targets=["x86-64-v4", "x86-64-v3"])


if __name__ == "__main__":
    main(*sys.argv[1:])
