"""The shared protocol's settings, and all that changes during training."""

import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from rankingmatch.augment import Policy, ViewSettings, view_policies
from rankingmatch.core.distributed import count, refuse_too_many, replicated
from rankingmatch.core.errors import ConfigError, DataError, DivergedError, unknown_name
from rankingmatch.core.options import option
from rankingmatch.core.randomness import Purpose, derived_seed
from rankingmatch.core.schedule import batchnorm_momentum
from rankingmatch.data import Split
from rankingmatch.methods import Batch, Context, Losses, Method, Task
from rankingmatch.networks import (
    Classifier,
    NetworkSettings,
    channel_statistics,
    head_parameters,
    make_classifier,
    set_batchnorm_momentum,
    to_tensor,
)
from rankingmatch.training.records import Window

IMAGES_PER_EPOCH = 2**16


@dataclass(frozen=True)
class TrainSettings:
    """The protocol that all methods share."""

    epochs: float | None = option(
        None,
        "Length of training in epochs of 65,536 labeled images (1024 steps at B = 64).",
        interval="(0, inf)",
    )
    steps: int | None = option(None, "S: length of training in steps; instead of --epochs.", interval="[1, inf)")
    stop_after: int | None = option(
        None, "Leave off after this many of the S steps: the beginning of a longer run.", interval="[1, inf)"
    )
    batch_size: int = option(64, "B: labeled images per step.", interval="[1, 65536]")
    mu: int = option(7, "μ: unlabeled images per labeled image.", interval="[1, 1024]")
    learning_rate: float = option(
        0.03, "η: learning rate at the start; it decays as η cos(7πs/16S).", interval="(0, inf)"
    )
    backbone_learning_rate: float | None = option(
        None,
        "Learning rate at the start of the network without its head, lower where it is trained already; 0 leaves its "
        "weights as they are. By default --learning-rate.",
        interval="[0, inf)",
    )
    momentum: float = option(0.9, "Nesterov momentum of SGD.", interval="[0, 1)")
    weight_decay: float = option(0.0005, "Weight decay of convolution and linear weights.", interval="[0, inf)")
    ema_decay: float = option(
        0.999, "Decay of the moving average of the weights, which is what is evaluated.", interval="[0, 1)"
    )
    seed: int = option(0, "Decides labels, initial weights, batches and views; a fold is a seed.", interval="[0, inf)")
    precision: Literal["float32", "bfloat16"] = option(
        "float32",
        "What the network computes in while it trains; losses are always computed in float32. bfloat16 pays where the "
        "processor has it.",
    )
    evaluate_every: int | None = option(
        None, "Steps between evaluations; by default an epoch, and at least 20 per run.", interval="[1, inf)"
    )
    log_every: int = option(10, "Steps over which the displayed losses are averaged.", interval="[1, inf)")

    @property
    def total_steps(self) -> int:
        """S."""
        if self.steps is not None:
            return self.steps
        epochs = 128.0 if self.epochs is None else self.epochs
        return max(1, round(epochs * self.steps_per_epoch))

    @property
    def last_step(self) -> int:
        """Where training ends: S, or before it if --stop-after says so."""
        return min(self.total_steps, self.stop_after or self.total_steps)

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which 2^16 labeled images are seen."""
        return max(1, IMAGES_PER_EPOCH // self.batch_size)

    @property
    def evaluation_interval(self) -> int:
        """Steps between evaluations."""
        if self.evaluate_every is not None:
            return self.evaluate_every
        return min(self.steps_per_epoch, max(1, self.total_steps // 20))


class Objective(nn.Module):
    """Model and method as one module: one forward per step, and one state to save."""

    def __init__(self, model: nn.Module, method: Method) -> None:
        super().__init__()
        self.model = model
        self.method = method

    def forward(self, batch: Batch, context: Context) -> Losses:
        """The method's losses."""
        return self.method(self.model, batch, context)  # type: ignore[no-any-return]


@dataclass
class State:
    """All that changes during training: what is here is what a checkpoint holds."""

    objective: Objective
    ema: Classifier
    optimizer: torch.optim.SGD
    views: dict[str, Policy]  # one that learns has rates
    device: torch.device
    step: int = 0
    seconds: float = 0.0
    best_error: float | None = None
    window: Window = field(default_factory=Window)

    @property
    def model(self) -> Classifier:
        """The model that is trained."""
        model = self.objective.model
        assert isinstance(model, Classifier)
        return model

    @cached_property
    def replica(self) -> nn.Module:
        """The objective as a step calls it: under DDP if several processes work on the run."""
        return replicated(self.objective)

    def raise_if_diverged(self) -> None:
        """Raise DivergedError if a loss since the last log, or a weight, is not finite.

        Such a state is neither evaluated nor saved. BatchNorm's running statistics count as weights.
        """
        self.window.raise_if_diverged()
        if not all(bool(torch.isfinite(value).all()) for value in self.objective.state_dict().values()):
            raise DivergedError(self.step - 1, "weights")


def initial_state(
    split: Split,
    method: Method,
    network: NetworkSettings,
    views: ViewSettings,
    settings: TrainSettings,
    device: torch.device,
) -> State:
    """The state before the first step: a function of the settings and the seed."""
    refuse_too_many(settings.batch_size)
    if method.unlabeled_views and len(split.unlabeled_rows) == 0:
        raise DataError(
            f"{type(method).__name__} needs unlabeled images and there are none; add some, lower --labels, "
            "or use --method supervised"
        )
    policies = view_policies(views)
    for view in (*method.labeled_views, *method.unlabeled_views):
        if view not in policies:
            raise unknown_name("view", view, policies, f" (asked for by {type(method).__name__})")
    classes = len(split.classes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(settings.seed, Purpose.INITIAL_WEIGHTS))
        seen = np.union1d(split.labeled_rows, split.unlabeled_rows)
        statistics = channel_statistics(split.images, seen)
        model = make_classifier(
            network.network, classes, *statistics, pretrained=network.pretrained, weights=network.weights
        )
        method.prepare(Task(classes, _feature_width(model, network.network, split), len(split.unlabeled_rows)))
    set_batchnorm_momentum(model, network.batchnorm_momentum or batchnorm_momentum(settings.total_steps))
    objective = Objective(model, method).to(device).train()
    ema = copy.deepcopy(model).requires_grad_(False).eval()
    model.divided = ema.divided = count() > 1
    return State(objective, ema, make_optimizer(objective, settings), policies, device)


def _feature_width(model: Classifier, name: str, split: Split) -> int:
    """The width of the features (0: there are only logits), found by a trial pass.

    ConfigError if the network cannot take these images.
    """
    buffers = {buffer: buffer.clone() for buffer in model.buffers()}
    try:
        logits, features = model(to_tensor(split.images[:2], torch.device("cpu")))
    except Exception as error:  # it may be the user's code
        size = "×".join(map(str, split.images.shape[1:]))
        raise ConfigError(f"network '{name}' cannot take {size} images ({type(error).__name__}: {error})") from error
    for buffer, before in buffers.items():  # BatchNorm's running statistics, which the pass has touched
        buffer.copy_(before)
    if logits.shape != (2, len(split.classes)) or features.ndim != 2:
        raise ConfigError(
            f"network '{name}' must return logits (n, {len(split.classes)}) or (logits, features (n, width)); for two "
            f"images it returned {tuple(logits.shape)} and {tuple(features.shape)}"
        )
    return 0 if features is logits else int(features.shape[1])


def make_optimizer(objective: Objective, settings: TrainSettings) -> torch.optim.SGD:
    """SGD with Nesterov momentum; weight decay on matrices and kernels only, never on biases and norms.

    Each group has a `base`, its learning rate at the start.
    """
    backbone = _backbone_parameters(objective) if settings.backbone_learning_rate is not None else set()
    parameters = [p for p in objective.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = []
    for base, among in (
        (settings.learning_rate, [p for p in parameters if p not in backbone]),
        (settings.backbone_learning_rate, [p for p in parameters if p in backbone]),
    ):
        for decay, params in (
            (settings.weight_decay, [p for p in among if p.ndim > 1]),
            (0.0, [p for p in among if p.ndim <= 1]),
        ):
            if params:
                groups.append({"params": params, "weight_decay": decay, "base": base})
    momentum = settings.momentum
    return torch.optim.SGD(groups, lr=settings.learning_rate, momentum=momentum, nesterov=momentum > 0)


def _backbone_parameters(objective: Objective) -> set[nn.Parameter]:
    """The parameters of the network without its head; ConfigError if it has no head that could be told from it."""
    backbone = objective.model.backbone
    assert isinstance(backbone, nn.Module)
    head = head_parameters(backbone)
    rest = {parameter for name, parameter in backbone.named_parameters() if name not in head}
    if not head or not rest:
        raise ConfigError("--backbone-learning-rate: the network has no linear head on a backbone; leave it out")
    return rest
