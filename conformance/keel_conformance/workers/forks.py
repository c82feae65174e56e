"""What a process may have run that others are forked from."""
from __future__ import annotations

import torch

MODES = ("forward",) if torch.backends.cuda.is_built() else ("forward", "training")
"""A backward pass starts autograd's threads where PyTorch is built for devices, and after that nobody may fork."""
