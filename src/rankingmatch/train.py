"""The training loop: a state, one step, and `train`, a generator that the caller logs, saves and stops."""

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rankingmatch.augment import Policy
from rankingmatch.data import Images, Split, rows_of_step
from rankingmatch.errors import DataError, DivergedError
from rankingmatch.methods import Batch, Context, Losses, Method, Task
from rankingmatch.metrics import confusion_matrix, error_rate
from rankingmatch.networks import (
    Classifier,
    NetworkSettings,
    channel_statistics,
    make_backbone,
    outputs,
    set_batchnorm_momentum,
    to_tensor,
)
from rankingmatch.options import option
from rankingmatch.randomness import Purpose, derived_seed, torch_generator
from rankingmatch.schedule import batchnorm_momentum, cosine, ema_decay

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
    batch_size: int = option(64, "B: labeled images per step.", interval="[1, inf)")
    mu: int = option(7, "μ: unlabeled images per labeled image.", interval="[1, inf)")
    learning_rate: float = option(
        0.03, "η: learning rate at the start; it decays as η cos(7πs/16S).", interval="(0, inf)"
    )
    momentum: float = option(0.9, "Nesterov momentum of SGD.", interval="[0, 1)")
    weight_decay: float = option(0.0005, "Weight decay of convolution and linear weights.", interval="[0, inf)")
    ema_decay: float = option(
        0.999, "Decay of the moving average of the weights, which is what is evaluated.", interval="[0, 1)"
    )
    seed: int = option(0, "Decides labels, initial weights, batches and views; a fold is a seed.", interval="[0, inf)")
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
class Window:
    """Sums since the last log: kept on the device, so that no step waits for a number.

    Non-finite losses are caught here: for each part, `bad` has the first step at which it was not finite, or -1.
    """

    count: int = 0
    sums: dict[str, Tensor] = field(default_factory=dict)
    bad: dict[str, Tensor] = field(default_factory=dict)

    def add(self, step: int, values: dict[str, Tensor], parts: dict[str, Tensor]) -> None:
        """Take in the numbers of a step."""
        self.count += 1
        for name, value in {**values, **parts}.items():
            value = value.detach().double()
            self.sums[name] = self.sums[name] + value if name in self.sums else value
        for name, part in parts.items():
            seen = self.bad.get(name, torch.full((), -1, device=part.device))
            now = torch.where(torch.isfinite(part.detach()), -1, step)
            self.bad[name] = torch.where(seen >= 0, seen, now)

    def raise_if_diverged(self) -> None:
        """Raise DivergedError for the earliest non-finite part."""
        bad = {name: int(step) for name, step in self.bad.items() if int(step) >= 0}
        if bad:
            part = min(bad, key=lambda name: bad[name])
            raise DivergedError(bad[part], part)


@dataclass(frozen=True)
class Metrics:
    """Averages over the steps since the last log."""

    losses: dict[str, float]
    learning_rate: float
    images_per_second: float
    confident: float | None = None  # share of unlabeled images whose pseudo-label counts
    purity: float | None = None  # share of those that are right, where the truth is known


@dataclass(frozen=True)
class Evaluation:
    """Error in percent of the EMA weights."""

    validation_error: float | None
    test_error: float | None
    best: bool  # the lowest validation error so far


@dataclass(frozen=True)
class Record:
    """What `train` says after each step; metrics and evaluation are there when they were due."""

    step: int
    steps: int
    seconds: float
    metrics: Metrics | None = None
    evaluation: Evaluation | None = None


@dataclass
class State:
    """All that changes during training: what is here is what a checkpoint holds."""

    objective: Objective
    ema: Classifier
    optimizer: torch.optim.SGD
    device: torch.device
    step: int = 0
    seconds: float = 0.0
    best_error: float | None = None
    best_step: int = 0
    window: Window = field(default_factory=Window)

    @property
    def model(self) -> Classifier:
        """The model that is trained."""
        model = self.objective.model
        assert isinstance(model, Classifier)
        return model


def make_model(network: str, classes: int, mean: Tensor, std: Tensor) -> Classifier:
    """A classifier for images of `len(mean)` channels, freshly initialised from torch's global generator."""
    return Classifier(make_backbone(network, len(mean), classes), mean, std)


def initial_state(
    split: Split, method: Method, network: NetworkSettings, settings: TrainSettings, device: torch.device
) -> State:
    """The state before the first step: a function of the settings and the seed."""
    if method.unlabeled_views and len(split.unlabeled_rows) == 0:
        raise DataError(
            f"{type(method).__name__} needs unlabeled images and there are none; add some, lower --labels, "
            "or use --method supervised"
        )
    classes = len(split.classes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(settings.seed, Purpose.INITIAL_WEIGHTS))
        model = make_model(network.network, classes, *channel_statistics(split.images))
        features = model(to_tensor(split.images[:2], torch.device("cpu"))).features.shape[1]
        method.prepare(Task(classes, features, len(split.unlabeled_rows)))
    # The trial pass above has touched BatchNorm's running statistics; they start anew.
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.reset_running_stats()
    set_batchnorm_momentum(model, network.batchnorm_momentum or batchnorm_momentum(settings.total_steps))
    objective = Objective(model, method).to(device).train()
    ema = copy.deepcopy(model).requires_grad_(False).eval()
    return State(objective, ema, make_optimizer(objective, settings), device)


def make_optimizer(objective: nn.Module, settings: TrainSettings) -> torch.optim.SGD:
    """SGD with Nesterov momentum; weight decay on matrices and kernels only, never on biases and norms."""
    parameters = [p for p in objective.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    momentum = settings.momentum
    return torch.optim.SGD(groups, lr=settings.learning_rate, momentum=momentum, nesterov=momentum > 0)


def make_batch(
    split: Split,
    method: Method,
    views: dict[str, Policy],
    settings: TrainSettings,
    step: int,
    device: torch.device,
) -> tuple[Batch, Tensor]:
    """The batch of a step and the truth of its unlabeled rows (-1 where unknown): a function of (seed, step)."""
    labeled = rows_of_step(split.labeled_rows, settings.batch_size, settings.seed, Purpose.LABELED_ROWS, step)
    generator = torch_generator(settings.seed, Purpose.LABELED_VIEWS, step)
    labels = torch.from_numpy(split.labels[labeled]).to(device)
    labeled_views = _views(split.images[labeled], method.labeled_views, views, generator, device)
    if not method.unlabeled_views:
        return Batch(labeled_views, labels), torch.empty(0, dtype=torch.long, device=device)
    count = settings.mu * settings.batch_size
    places = np.arange(len(split.unlabeled_rows))
    place = rows_of_step(places, count, settings.seed, Purpose.UNLABELED_ROWS, step)
    rows = split.unlabeled_rows[place]
    generator = torch_generator(settings.seed, Purpose.UNLABELED_VIEWS, step)
    unlabeled_views = _views(split.images[rows], method.unlabeled_views, views, generator, device)
    batch = Batch(labeled_views, labels, unlabeled_views, torch.from_numpy(place).to(device))
    return batch, torch.from_numpy(split.truth[rows]).to(device)


def _views(
    images: np.ndarray,
    names: tuple[str, ...],
    views: dict[str, Policy],
    generator: torch.Generator,
    device: torch.device,
) -> tuple[Tensor, ...]:
    tensor = to_tensor(images, device)
    count, _, height, width = tensor.shape
    return tuple(views[name].apply(tensor, views[name].draw(count, height, width, generator)) for name in names)


def training_step(state: State, batch: Batch, settings: TrainSettings) -> Losses:
    """Forward, backward, SGD and EMA: advances the state by one step."""
    steps = settings.total_steps
    for group in state.optimizer.param_groups:
        group["lr"] = cosine(settings.learning_rate, state.step, steps)
    generator = torch_generator(settings.seed, Purpose.METHOD, state.step)
    context = Context(state.step, steps, state.ema, generator)
    devices = [state.device] if state.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        # Whatever the network itself draws (dropout) depends on (seed, step), too.
        torch.manual_seed(derived_seed(settings.seed, Purpose.NETWORK, state.step))
        losses: Losses = state.objective(batch, context)
        state.optimizer.zero_grad()
        losses.total.backward()
        state.optimizer.step()
    update_ema(state.ema, state.model, ema_decay(settings.ema_decay, state.step))
    state.step += 1
    return losses


@torch.no_grad()
def update_ema(ema: nn.Module, model: nn.Module, decay: float) -> None:
    """Average the weights; copy the buffers (BatchNorm's running statistics are averages already)."""
    torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 1 - decay)
    for mine, new in zip(ema.buffers(), model.buffers(), strict=True):
        mine.copy_(new)


def train(state: State, split: Split, views: dict[str, Policy], settings: TrainSettings) -> Iterator[Record]:
    """Train from where the state stands to the end; after each step, yield a Record.

    Between two records the state is whole: the caller may save it, stop, and go on later from the saved state to
    the identical result. Raises DivergedError when a loss is not finite.
    """
    method, steps = state.objective.method, settings.total_steps
    started, seconds_before = time.perf_counter(), state.seconds
    images_per_step = settings.batch_size * (1 + settings.mu * bool(method.unlabeled_views))
    last = time.perf_counter()
    while state.step < steps:
        step = state.step
        batch, truth = make_batch(split, method, views, settings, step, state.device)
        losses = training_step(state, batch, settings)
        state.window.add(step, _pseudo_label_counts(losses, truth), {**losses.parts, "total": losses.total})
        state.seconds = seconds_before + time.perf_counter() - started
        evaluating = state.step % settings.evaluation_interval == 0 or state.step == steps
        metrics = evaluation = None
        if evaluating or state.step % settings.log_every == 0:
            state.window.raise_if_diverged()
            speed = images_per_step * state.window.count / (time.perf_counter() - last)
            metrics = _close_window(state, cosine(settings.learning_rate, step, steps), speed)
        if evaluating:
            evaluation = _evaluation(state, split)
            state.seconds = seconds_before + time.perf_counter() - started
        if metrics:
            last = time.perf_counter()
        yield Record(state.step, steps, state.seconds, metrics, evaluation)


def _pseudo_label_counts(losses: Losses, truth: Tensor) -> dict[str, Tensor]:
    """Numbers of unlabeled rows: all, confident, confident with known truth, and of these the right ones."""
    if losses.pseudo_labels is None:
        return {}
    confident = losses.pseudo_labels.confident
    known = confident & (truth >= 0)
    right = known & (losses.pseudo_labels.labels == truth)
    rows = torch.tensor(len(confident), device=confident.device)
    return {"rows": rows, "confident": confident.sum(), "known": known.sum(), "right": right.sum()}


def _close_window(state: State, learning_rate: float, speed: float) -> Metrics:
    sums = {name: float(value) for name, value in state.window.sums.items()}
    losses = {name: sums[name] / state.window.count for name in state.window.bad}
    state.window = Window()
    if "rows" not in sums:
        return Metrics(losses, learning_rate, speed)
    purity = sums["right"] / sums["known"] if sums["known"] else None
    return Metrics(losses, learning_rate, speed, sums["confident"] / sums["rows"], purity)


def _evaluation(state: State, split: Split) -> Evaluation:
    classes = len(split.classes)
    validation = test = None
    if split.validation is not None:
        validation = error_rate(confusion_of(state.ema, split.validation, classes, state.device))
    if split.test is not None:
        test = error_rate(confusion_of(state.ema, split.test, classes, state.device))
    best = validation is not None and (state.best_error is None or validation < state.best_error)
    if best:
        state.best_error, state.best_step = validation, state.step
    return Evaluation(validation, test, best)


def confusion_of(model: nn.Module, images: Images, classes: int, device: torch.device) -> np.ndarray:
    """Confusion matrix of a model's predictions."""
    predicted = [output.logits.argmax(1).cpu().numpy() for output in outputs(model, images.images, device)]
    return confusion_matrix(images.labels, np.concatenate(predicted), classes)
