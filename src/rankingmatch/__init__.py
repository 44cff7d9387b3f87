"""Train an image classifier from a few labeled and many unlabeled images.

    import rankingmatch as rm

    clf = rm.RankingMatchClassifier().fit(X, y)        # scikit-learn's interface; y is -1 where unlabeled
    run = rm.train("photos", labels=40, out="runs/1")  # what `rankingmatch train` does
    rm.evaluate(run), rm.predict(run, "new-photos"), rm.export(run, "photos.onnx")
    rm.losses, rm.augment, rm.methods, rm.networks     # plain PyTorch, for your own training loop

Everything is imported on first use, so that `import rankingmatch` does not import torch.
"""

from rankingmatch.core.imports import forget_current_directory, is_command_line

if is_command_line():  # before anything is imported that might be in the current directory
    forget_current_directory()

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankingmatch import augment, losses, methods, networks
    from rankingmatch.core.errors import (
        ConfigError,
        DataError,
        DivergedError,
        InputError,
        Interrupted,
        LostProcessError,
        RankingMatchError,
        RunError,
    )
    from rankingmatch.estimator import RankingMatchClassifier
    from rankingmatch.runs.directory import Run
    from rankingmatch.runs.evaluate import evaluate
    from rankingmatch.runs.export import export
    from rankingmatch.runs.predict import predict
    from rankingmatch.runs.train import train

__version__ = "0.2.0"

__all__ = [
    "ConfigError",
    "DataError",
    "DivergedError",
    "InputError",
    "Interrupted",
    "LostProcessError",
    "RankingMatchClassifier",
    "RankingMatchError",
    "Run",
    "RunError",
    "__version__",
    "augment",
    "evaluate",
    "export",
    "losses",
    "methods",
    "networks",
    "predict",
    "train",
]

# Where each public name is defined; "" for a module of the package itself.
_MODULES = {
    **dict.fromkeys([name for name in __all__ if name.endswith("Error")], "core.errors"),
    "Interrupted": "core.errors",
    "RankingMatchClassifier": "estimator",
    "Run": "runs.directory",
    **{name: f"runs.{name}" for name in ("evaluate", "export", "predict", "train")},
    **dict.fromkeys(["augment", "losses", "methods", "networks"], ""),
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module 'rankingmatch' has no attribute '{name}'")
    module = _MODULES[name]
    if not module:
        return importlib.import_module(f"rankingmatch.{name}")
    return getattr(importlib.import_module(f"rankingmatch.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
