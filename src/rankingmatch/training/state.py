"""Everything that changes during training, and how it starts."""

import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp import GradScaler

from rankingmatch.augment import Policy, ViewSettings, view_policies
from rankingmatch.core.distributed import replicated, require_enough_images, world_size
from rankingmatch.core.errors import ConfigError, DataError, DivergedError, RankingMatchError, setting, unknown_name
from rankingmatch.core.randomness import Purpose, derived_seed
from rankingmatch.core.schedule import statistics_momentum
from rankingmatch.data import Split
from rankingmatch.data.bank import Bank
from rankingmatch.methods import Batch, Context, Losses, Method, Task
from rankingmatch.networks import (
    Classifier,
    NetworkSettings,
    channel_statistics,
    freeze,
    freeze_batchnorm,
    head_parameters,
    make_classifier,
    normalize_head,
    set_batchnorm_momentum,
    to_tensor,
)
from rankingmatch.training.records import Window
from rankingmatch.training.settings import TrainSettings

AVERAGE = 0.5
SHARES = (0.0, AVERAGE, 1.0)  # of the trained weights, of which one is kept


class Objective(nn.Module):
    """Model and method as one module: one forward pass per step, and one state to save."""

    def __init__(self, model: Classifier, method: Method) -> None:
        super().__init__()
        self.model = model
        self.method = method

    def forward(self, batch: Batch, context: Context) -> Losses:
        """The method's losses."""
        return self.method(self.model, batch, context)


class Verdict(NamedTuple):
    """The share of the trained weights to keep, and the evidence: scores on images that were not trained on."""

    share: float
    start: float  # Brier score of the weights before training, 0 at best and 1 at worst
    average: float  # of the average of both
    trained: float
    images: int

    def __str__(self) -> str:
        """What was kept, and why."""
        names = ("the pretrained network with a new head", "the average of both networks", "the fine-tuned network")
        return (
            f"kept {names[SHARES.index(self.share)]}: Brier scores on {self.images:,} labeled images that were not "
            f"trained on: {self.start:.3f} before fine-tuning, {self.average:.3f} averaged, {self.trained:.3f} after it"
        )


class FittedTo(NamedTuple):
    """What the head of a network was fitted to: features (n, width) of these training rows (n,)."""

    rows: np.ndarray
    features: np.ndarray


@dataclass
class State:
    """Everything that changes during training. `snapshot.py` lists what a checkpoint holds of it."""

    objective: Objective
    ema: Classifier
    optimizer: torch.optim.Optimizer
    views: dict[str, Policy]  # by name; CTAugment learns its rates
    device: torch.device
    step: int = 0
    seconds: float = 0.0
    best_error: float | None = None
    window: Window = field(default_factory=Window)
    bank: Bank | None = None  # instead of views of images, if a part of the network is frozen
    start: dict[str, Tensor] = field(default_factory=dict)  # trainable weights before training, if they are needed
    verdict: Verdict | None = None  # on how much of the training to keep, once there is evidence
    # Of float16 only: multiplies the loss so that small gradients are not rounded to 0, and skips steps that overflow.
    scaler: GradScaler = field(default_factory=lambda: GradScaler(enabled=False))

    @property
    def model(self) -> Classifier:
        """The model being trained."""
        return self.objective.model

    @cached_property
    def replica(self) -> nn.Module:
        """The objective as a step calls it: wrapped in DDP if there are several processes."""
        return replicated(self.objective)

    def last_step(self, settings: TrainSettings) -> int:
        """The step at which training ends: the first one, if its outcome is not kept."""
        return 1 if self.verdict is not None and self.verdict.share == 0 else settings.last_step

    def remember_start(self) -> None:
        """Keep a copy of the weights that training starts from."""
        self.start = {name: value.detach().clone() for name, value in self._trainable()}

    @torch.no_grad()
    def average_with_start(self, trained_share: float) -> None:
        """Average the weights before and after training [1]: (1 − share) θ_start + share θ_trained, of the EMA model.

        1. Wortsman et al., Robust fine-tuning of zero-shot models, 2022.
        """
        for name, value in self._trainable():
            value.copy_(torch.lerp(self.start[name], value, trained_share))

    def _trainable(self) -> list[tuple[str, Tensor]]:
        """The EMA model's weights that are trained."""
        trained = {name for name, value in self.model.named_parameters() if value.requires_grad}
        return [(name, value) for name, value in self.ema.named_parameters() if name in trained]

    def raise_if_diverged(self) -> None:
        """Raise DivergedError if a weight, or a loss since the last log, is not finite.

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
    """The state before the first step, a function of the settings and the seed."""
    require_enough_images(settings.batch_size)
    if method.unlabeled_views and len(split.unlabeled_rows) == 0:
        raise DataError(
            f"{type(method).__name__} needs unlabeled images and there are none; add some, lower {setting('labels')}, "
            f"or set {setting('method')} to supervised"
        )
    policies = view_policies(views)
    for view in (*method.labeled_views, *method.unlabeled_views):
        if view not in policies:
            raise unknown_name("view", view, policies, f" (required by {type(method).__name__})")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(settings.seed, Purpose.INITIAL_WEIGHTS))
        seen = np.zeros(len(split.images), bool)
        seen[split.labeled_rows] = seen[split.unlabeled_rows] = True
        statistics = channel_statistics(split.images, np.flatnonzero(seen))
        model = make_classifier(
            network.network, len(split.classes), *statistics, pretrained=network.pretrained, weights=network.weights
        )
        width = _feature_width(model, network.network, split)
        method.prepare(task_of(split, width, model if network.tune == "all" else None))
    if network.initial_head == "fitted":
        normalize_head(model.backbone)
    else:
        for name, value in (("final_head", "fitted"), ("final_weights", "judged")):
            if getattr(settings, name) == value:
                raise ConfigError(f"{setting(name)} {value} needs {setting('initial_head')} fitted; give both")
    set_length(model, network, settings)
    fixed = network.pretrained if network.fixed_batchnorm is None else network.fixed_batchnorm
    if fixed or network.tune != "all":
        freeze_batchnorm(model)
    freeze(model, network.tune)
    if device.type == "cuda":  # as the images; on a CPU it makes no difference
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return make_state(model, method, settings, device, policies)


def task_of(split: Split, features: int, model: Classifier | None = None) -> Task:
    """What a method knows of a split, of features of this width, and of a model that it may train as a whole."""
    counts = np.bincount(split.labels[split.drawn_rows], minlength=len(split.classes))
    unlabeled, labeled = len(split.unlabeled_rows), len(split.labeled_rows)
    return Task(len(split.classes), features, unlabeled, labeled, tuple(counts.tolist()), model)


def make_state(
    model: Classifier,
    method: Method,
    settings: TrainSettings,
    device: torch.device,
    policies: dict[str, Policy] | None = None,
) -> State:
    """The state before the first step of a model and a method that has been prepared."""
    objective = Objective(model, method).to(device).train()
    ema = copy.deepcopy(model).requires_grad_(False).eval()
    model.divided = ema.divided = world_size() > 1
    scaler = GradScaler(device.type, enabled=settings.precision == "float16")
    state = State(objective, ema, make_optimizer(objective, settings), policies or {}, device, scaler=scaler)
    if settings.trained_share < 1 or settings.final_weights == "judged":
        state.remember_start()  # a checkpoint that is restored must find tensors of these shapes
    return state


def set_length(model: Classifier, network: NetworkSettings, settings: TrainSettings) -> None:
    """Adapt a model to the number of steps: BatchNorm's statistics cover the same share of any training."""
    set_batchnorm_momentum(model, network.batchnorm_momentum or statistics_momentum(settings.total_steps))


def _feature_width(model: Classifier, name: str, split: Split) -> int:
    """The width of the features, found by a trial pass; 0 if the network returns logits only.

    Raises ConfigError if the network cannot process these images.
    """
    buffers = {buffer: buffer.clone() for buffer in model.buffers()}
    try:
        logits, features = model(to_tensor(split.images[:2], torch.device("cpu")))
    except RankingMatchError:
        raise
    except Exception as error:  # it may be the user's code
        size = "×".join(map(str, split.images.shape[1:]))
        raise ConfigError(f"network '{name}' cannot process {size} images ({type(error).__name__}: {error})") from error
    for buffer, before in buffers.items():  # BatchNorm's running statistics, which the pass has changed
        buffer.copy_(before)
    if logits.shape != (2, len(split.classes)) or features.ndim != 2:
        raise ConfigError(
            f"network '{name}' must return logits (n, {len(split.classes)}) or (logits, features (n, width)); for two "
            f"images it returned {tuple(logits.shape)} and {tuple(features.shape)}"
        )
    return 0 if features is logits else int(features.shape[1])


def make_optimizer(objective: Objective, settings: TrainSettings) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum, or AdamW; weight decay applies to matrices and kernels, not to biases and norms.

    `base` of each group is its initial learning rate.
    """
    parameters = [p for p in objective.parameters() if p.requires_grad]
    backbone: set[nn.Parameter] = set()
    if settings.backbone_learning_rate is not None:
        head = head_parameters(objective.model.backbone)
        backbone = {value for name, value in objective.model.backbone.named_parameters() if name not in head}
        if not head or not backbone:
            raise ConfigError(
                f"{setting('backbone_learning_rate')} needs a network with a linear head on a backbone; remove it"
            )
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
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(momentum, 0.999))
    # On a GPU one kernel for all parameters, which also skips a step that overflows without waiting for the device.
    fused = True if parameters[0].is_cuda else None
    return torch.optim.SGD(groups, lr=settings.learning_rate, momentum=momentum, nesterov=momentum > 0, fused=fused)


def first_view(state: State, split: Split, rows: np.ndarray) -> np.ndarray:
    """Training images as the model takes them: of the first precomputed view, or as they are if there is no bank."""
    if state.bank is None:
        return np.asarray(split.images[rows])
    maps = state.bank.views[state.objective.method.labeled_views[0]][0]
    return np.asarray(maps[rows].transpose(0, 2, 3, 1))
