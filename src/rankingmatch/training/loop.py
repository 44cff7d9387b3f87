"""The training loop: one step, and `train`, a generator whose caller logs, saves and stops."""

import time
from collections.abc import Iterator
from functools import partial
from itertools import repeat

import torch
from torch import nn

from rankingmatch.core.devices import autocast
from rankingmatch.core.distributed import average_statistics, gathered, rank
from rankingmatch.core.metrics import Errors, confusion_matrix
from rankingmatch.core.randomness import Purpose, derived_seed, torch_generator
from rankingmatch.core.schedule import cosine, ema_decay
from rankingmatch.data import Progress, Split, no_progress
from rankingmatch.data.bank import Bank
from rankingmatch.methods import Batch, Context, Losses
from rankingmatch.networks import predict_logits
from rankingmatch.training.batches import (
    Probe,
    make_batch,
    make_probes,
    read_images,
    read_steps,
    whole_batch,
)
from rankingmatch.training.records import Evaluation, Record, Window, pseudo_label_counts
from rankingmatch.training.settings import TrainSettings
from rankingmatch.training.state import AVERAGE, State


def training_step(state: State, batch: Batch, settings: TrainSettings) -> Losses:
    """Advance the state by one step: forward, backward, SGD and EMA."""
    steps = settings.total_steps
    for group in state.optimizer.param_groups:
        group["lr"] = cosine(group["base"], state.step, steps)
    generator = torch_generator(settings.seed, Purpose.METHOD, state.step)
    context = Context(state.step, steps, state.ema, generator)
    devices = [state.device] if state.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        # Random numbers of the network itself (dropout) also depend on (seed, step), and on the process.
        position = (state.step, rank()) if rank() else (state.step,)
        torch.manual_seed(derived_seed(settings.seed, Purpose.NETWORK, *position))
        with autocast(state.device, getattr(torch, settings.precision)):
            losses: Losses = state.replica(whole_batch(batch), context)
        state.optimizer.zero_grad()
        state.scaler.scale(losses.total).backward()
        state.scaler.step(state.optimizer)
        state.scaler.update()
    average_statistics(state.model)
    update_ema(state.ema, state.model, ema_decay(settings.ema_decay, state.step))
    state.step += 1
    return losses


@torch.no_grad()
def update_ema(ema: nn.Module, model: nn.Module, decay: float) -> None:
    """Average the weights; copy the buffers, because BatchNorm's running statistics are averages already."""
    torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 1 - decay)
    for mine, new in zip(ema.buffers(), model.buffers(), strict=True):
        mine.copy_(new)


@torch.no_grad()
def learn_from_probe(probe: Probe, ema: nn.Module) -> None:
    """Update a policy by how well the EMA model recognizes labeled images under it."""
    probabilities = ema(gathered(probe.images, len(probe.labels))).logits.softmax(1)
    # The proximity 1 - ½ Σ|p - onehot| equals the probability of the label, because probabilities sum to 1.
    proximity = probabilities.gather(1, probe.labels[:, None]).squeeze(1)
    probe.policy.learn(probe.draw, proximity.cpu())


def train(state: State, split: Split, settings: TrainSettings, progress: Progress = no_progress) -> Iterator[Record]:
    """Train a state to the last step, and yield a Record after each step.

    Between two records the state is complete: the caller may save it, stop, and later continue from the saved state
    to the identical result.

    Parameters
    ----------
    state
        The state of training, from `initial_state` or a checkpoint; it is changed in place.
    split
        The images and labels.
    settings
        The training protocol.
    progress
        Told of what takes long between two steps.

    Raises
    ------
    DivergedError
        If a loss or a weight is not finite.
    """
    method, steps = state.objective.method, state.last_step(settings)
    views = state.bank or state.views
    started, seconds_before = time.perf_counter(), state.seconds
    images_per_step = settings.batch_size * (1 + settings.mu * bool(method.unlabeled_views))
    classes, last = len(split.classes), time.perf_counter()
    if state.step == 0 and state.start:
        state.remember_start()  # the head has been fitted since the state was made
    pinned = state.device.type == "cuda"
    read = partial(read_images, split, method, settings, pinned)
    # On a GPU, images are read ahead, unless the method chooses some of them in the step before.
    ahead = pinned and method.given_labels is None
    upcoming = read_steps(read, state.step, ahead) if state.bank is None else repeat(None)
    while state.step < steps:
        step, step_started = state.step, time.perf_counter()
        images = next(upcoming)
        batch, truth = make_batch(split, method, views, settings, step, state.device, images)
        probes = make_probes(split, method, views, settings, step, state.device, images)
        losses = training_step(state, batch, settings)
        for probe in probes:
            learn_from_probe(probe, state.ema)
        state.window.add(step, pseudo_label_counts(losses, truth, classes), {**losses.parts, "total": losses.total})
        state.seconds = seconds_before + time.perf_counter() - started
        evaluating = state.step % settings.evaluation_interval == 0 or state.step == steps
        metrics = evaluation = None
        if evaluating or state.step % settings.log_every == 0:
            state.window.raise_if_diverged()
            speed = images_per_step * state.window.count / (time.perf_counter() - last)
            metrics = state.window.metrics(cosine(settings.learning_rate, step, settings.total_steps), speed)
            state.window = Window()
        step_seconds = time.perf_counter() - step_started
        if evaluating:
            state.raise_if_diverged()
            if state.step == steps:
                _finish(state, split, settings, progress)
            evaluation = evaluate(state, split)
            state.seconds = seconds_before + time.perf_counter() - started
        if metrics:
            last = time.perf_counter()
        verdict = str(state.verdict) if state.verdict is not None and state.step == steps else ""
        yield Record(state.step, steps, state.seconds, step_seconds, metrics, evaluation, verdict)


def _finish(state: State, split: Split, settings: TrainSettings, progress: Progress) -> None:
    """Make the final weights of the EMA model."""
    share = settings.trained_share
    if settings.final_weights == "judged":
        from rankingmatch.training.evidence import judge_on_validation  # which trains, too

        state.verdict = state.verdict or judge_on_validation(state, split, settings)
        share = AVERAGE if state.verdict is None else state.verdict.share
    if share < 1:
        state.average_with_start(share)
    if settings.final_head == "fitted" and share > 0:
        from rankingmatch.heads.linear import finish_head  # scikit-learn takes a second to import

        finish_head(state, split, settings.seed, progress)


def evaluate(state: State, split: Split) -> Evaluation:
    """The errors of the EMA weights on the validation and test images."""
    errors: list[Errors | None] = []
    bank = state.bank or Bank({})
    for images, maps in ((split.validation, bank.validation), (split.test, bank.test)):
        if images is None:
            errors.append(None)
            continue
        inputs = images.images if maps is None else maps.transpose(0, 2, 3, 1)
        predicted = predict_logits(state.ema, inputs, state.device).argmax(1)
        errors.append(Errors.of(confusion_matrix(images.labels, predicted, len(split.classes))))
    validation, test = errors
    best = validation is not None and (state.best_error is None or validation.error < state.best_error)
    if validation is not None and best:
        state.best_error = validation.error
    return Evaluation(validation, test, best)
