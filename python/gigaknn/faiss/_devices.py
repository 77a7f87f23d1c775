"""Copies of indexes on GPUs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from .._arguments import whole
from .._core import devices
from ._indexes import Index

if TYPE_CHECKING:
    from .._types import Whole


class StandardGpuResources:
    """Nothing: gigaknn needs none."""


def get_num_gpus() -> int:
    """GPUs that gigaknn may use."""
    return sum(name.startswith("cuda") for name in devices())


def index_cpu_to_gpu(provider: object, device: Whole, index: Index, options: object = None) -> Any:
    """A copy of the index that GPU number `device` searches."""
    return _on_device(index, f"cuda:{whole(device, 'device')}")


def index_cpu_to_all_gpus(index: Index, co: object = None, ngpu: int = -1) -> Any:
    """A copy of the index that several GPUs search."""
    count = get_num_gpus() if ngpu == -1 else ngpu
    return _on_device(index, ",".join(f"cuda:{i}" for i in range(max(1, count))))


def index_gpu_to_cpu(index: Index) -> Any:
    """A copy of the index that the CPU searches."""
    return _on_device(index, "cpu")


def _on_device(index, device):
    moved = copy.deepcopy(index)
    moved._held.device = device
    moved._held.reopen()
    return moved
