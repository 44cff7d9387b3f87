"""timm itself, also where torchvision's compiled operators do not fit the installed torch."""

import sys
import warnings
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest
import torch

_LIBRARIES: list[torch.library.Library] = []  # an operator exists as long as its library


@cache
def import_timm() -> Any:
    """Import timm; skip the test if it is not installed."""
    if find_spec("timm") is None or find_spec("torchvision") is None:
        pytest.skip("timm is not installed: pip install 'rankingmatch[timm]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import torchvision  # noqa: F401
        except RuntimeError:
            # A torchvision built for CUDA cannot load its own operators beside a torch built for the CPU. It looks up
            # two when it is imported, which no model of timm calls.
            library = torch.library.Library("torchvision", "DEF")
            library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _LIBRARIES.append(library)
            for name in [name for name in sys.modules if name.split(".")[0] in ("torchvision", "timm")]:
                del sys.modules[name]
        import timm

    return timm
