"""How much of fine-tuning to keep: the evidence of labeled images that it has not been trained on.

Where images resemble those of pretraining, training on a few labels can make a network worse; elsewhere it is worth ten
points. So the final weights are (1 − s) θ_start + s θ_trained [1] with a share s of 0, ½ or 1. Validation images decide
on it, if there are as many as labels. If not, trial runs do: each of two short trainings has half of the labels, and
predicts the other half.

1. Wortsman et al., Robust fine-tuning of zero-shot models, 2022.
"""

import copy
import math
from dataclasses import replace

import numpy as np

from rankingmatch.core.randomness import Purpose, numpy_generator
from rankingmatch.data import Progress, Split, no_progress
from rankingmatch.heads.linear import finish_head, set_head
from rankingmatch.networks import predict_probabilities
from rankingmatch.training.loop import train
from rankingmatch.training.settings import TrainSettings
from rankingmatch.training.state import AVERAGE, SHARES, FittedTo, State, Verdict, first_view

STEPS = 30  # of a trial


def judge(probabilities: np.ndarray, labels: np.ndarray) -> Verdict:
    """The verdict on probabilities (shares, n, classes) for images that were not trained on, with labels (n,).

    An image scores half its Brier score, ½ Σ_c (p_c − [c = label])²: 0 at best, 1 at worst. The average of the weights
    is kept unless another share is better by more than the standard error of the difference.
    """
    truth = np.eye(probabilities.shape[2])[labels]
    scores = ((probabilities - truth) ** 2).sum(2) / 2  # (shares, n)
    gains = scores[SHARES.index(AVERAGE)] - scores
    sure = gains.mean(1) - gains.std(1) / math.sqrt(len(labels))  # 0 for the average itself
    start, average, trained = scores.mean(1).tolist()
    return Verdict(SHARES[int(sure.argmax())], start, average, trained, len(labels))


def is_judged_on_validation(split: Split) -> bool:
    """Whether there are as many validation images as labels."""
    return split.validation is not None and len(split.validation) >= len(split.labeled_rows)


def judge_on_validation(state: State, split: Split, settings: TrainSettings) -> Verdict | None:
    """The verdict of the validation images on a state that has been trained; None if there are too few."""
    images = split.validation
    if images is None or not is_judged_on_validation(split):
        return None
    maps = None if state.bank is None else state.bank.validation
    inputs = images.images if maps is None else maps.transpose(0, 2, 3, 1)
    trained = copy.deepcopy(state.ema.state_dict())
    verdict = judge(_of_shares(state, split, inputs, settings), images.labels)
    state.ema.load_state_dict(trained)
    return verdict


def try_fine_tuning(
    state: State, split: Split, settings: TrainSettings, fitted: FittedTo, progress: Progress = no_progress
) -> Verdict | None:
    """The verdict of two trial runs of a state that is ready to train.

    `fitted` is what its head was fitted to. A trial uses nothing of the images that it predicts at the end. There is no
    verdict if validation images will decide instead, or if no class has two labels.
    """
    short = replace(
        settings,
        steps=STEPS,
        epochs=None,
        stop_after=None,
        evaluate_every=STEPS,
        final_weights="trained",
        trained_share=1.0,
        final_head="trained",
    )
    halves = _halves(split, settings.seed)
    if is_judged_on_validation(split) or not len(halves[0]):
        return None
    probabilities = []
    for number, held_out in enumerate(halves):
        trial = copy.deepcopy(state, {id(state.bank): state.bank})
        part = replace(
            split,
            labeled_rows=np.setdiff1d(split.labeled_rows, held_out),
            drawn_rows=split.drawn_rows[~np.isin(split.drawn_rows, held_out)],
            validation=None,
            test=None,
        )
        used = ~np.isin(fitted.rows, held_out)
        set_head((trial.model, trial.ema), FittedTo(fitted.rows[used], fitted.features[used]), part, settings.seed)
        for record in train(trial, part, short):
            progress("trying fine-tuning", number * STEPS + record.step, len(halves) * STEPS)
        probabilities.append(_of_shares(trial, part, first_view(trial, split, held_out), settings))
    return judge(np.concatenate(probabilities, axis=1), split.labels[np.concatenate(halves)])


def _halves(split: Split, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two parts of the labeled rows with about half of each class; the only label of a class is in neither."""
    labels = split.labels[split.labeled_rows]
    halves: tuple[list[int], list[int]] = [], []
    rng = numpy_generator(seed, Purpose.TRIALS)
    for label in np.unique(labels):
        rows = rng.permutation(split.labeled_rows[labels == label])
        if len(rows) > 1:
            first = len(rows) // 2
            halves[0].extend(rows[:first])
            halves[1].extend(rows[first:])
    return np.sort(np.array(halves[0], np.int64)), np.sort(np.array(halves[1], np.int64))


def _of_shares(state: State, split: Split, inputs: np.ndarray, settings: TrainSettings) -> np.ndarray:
    """Probabilities (shares, n, classes) of images or maps; the EMA model has the first share at the end."""
    probabilities = []
    for share, before in reversed(list(zip(SHARES, (*SHARES[1:], 1.0), strict=True))):
        state.average_with_start(share / before)
        if share and settings.final_head == "fitted":
            finish_head(state, split, settings.seed)
        probabilities.append(predict_probabilities(state.ema, inputs, state.device))
    return np.stack(probabilities[::-1])
