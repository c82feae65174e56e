"""What trials need, done once by the process that all trial processes are forked from: imports, and a first trial,
which loads what is imported late.
"""

import os

import torch

from keel.minify import capture_model
from keel.minify.failure import Subject, Trial
from keel.minify.graph_program import Call, Program, Value
from keel.minify.program_trials import attempt

__all__ = ["FIRST", "capture_model"]

FIRST = Program(("x",), (Call("y", "aten.exp.default", (Value("x"),)),), ("y",), ((torch.ones(2),),))

os.environ |= {"KEEL_GRAPH_CACHE": "0", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}  # a process that used CUDA cannot fork
threads = torch.get_num_threads()
torch.set_num_threads(1)  # a forked process would wait for the threads of PyTorch, which it does not have
attempt(Trial(FIRST, Subject(("eager",))), lambda text: None)
torch.set_num_threads(threads)
