"""A frozen part of the network is computed once; training on its outputs is training on the images."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from tiny import CPU, VIEW_SETTINGS, tiny_settings

from rankingmatch.core.errors import ConfigError, DataError
from rankingmatch.data import Dataset, Images, Split, assemble_split
from rankingmatch.data import bank as banks_of_data
from rankingmatch.data.bank import BankFile, read_bank
from rankingmatch.heads.linear import fitted_head, start_head
from rankingmatch.methods import METHODS, find_method, make_method
from rankingmatch.networks import NetworkSettings, predict_logits, predict_logits_and_features
from rankingmatch.training import evidence
from rankingmatch.training.banks import make_bank
from rankingmatch.training.evidence import judge, try_fine_tuning
from rankingmatch.training.loop import train
from rankingmatch.training.settings import TrainSettings
from rankingmatch.training.snapshot import restore, take_snapshot
from rankingmatch.training.state import FittedTo, State, Verdict, initial_state

VIEWS = replace(VIEW_SETTINGS, bank_views=2)
SETTINGS = tiny_settings(steps=2, batch_size=6)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def split() -> Split:
    rng = np.random.default_rng(0)

    def images(count: int) -> Images:
        return Images(rng.integers(0, 256, (count, 32, 32, 1)).astype(np.uint8), np.arange(count) % 3)

    return assemble_split(Dataset(("a", "b", "c"), images(24), images(6), images(6)), np.arange(6), np.arange(0))


def state_of(split: Split, tune: Literal["all", "top", "head"], method: str = "fixmatch-ra", **views: Any) -> State:
    network = NetworkSettings("efficientnet-lite0", tune=tune)
    chosen = replace(VIEWS, **views)
    state = initial_state(split, make_method(method), network, chosen, SETTINGS, CPU)
    state.bank = make_bank(state, split, chosen)
    return state


WHOLE = ("swwae", "cc-gan")  # they reconstruct or generate images, so they need all layers


@pytest.mark.parametrize("method", WHOLE)
def test_methods_that_need_all_layers_are_refused(method: str, split: Split) -> None:
    with pytest.raises(ConfigError, match=f"the method {method}"):
        state_of(split, "top", method)


# Of the head alone, only those methods that do something to images other than passing them through the network.
@pytest.mark.parametrize(
    ("method", "tune"),
    [
        *((method, "top") for method in METHODS if method not in WHOLE),
        *((method, "head") for method in ("mixmatch", "remixmatch", "vat")),
    ],
)
def test_every_method_trains_on_a_bank(method: str, tune: Literal["top", "head"], split: Split) -> None:
    strong = find_method(method).preset.get("strong", "randaugment")
    state = state_of(split, tune, method, strong=strong)
    before = {name: value.clone() for name, value in state.model.state_dict().items()}
    records = list(train(state, split, SETTINGS))
    assert records[-1].evaluation is not None
    frozen = state.model.frozen_names()
    moved = {name for name, value in state.model.state_dict().items() if not torch.equal(value, before[name])}
    assert "backbone.classifier.weight" in moved
    assert not moved & frozen
    assert not any("running" in name for name in moved)  # BatchNorm's statistics are fixed
    assert any(name.startswith("backbone.blocks.15") for name in moved) == (tune == "top")


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_banks_are_for_every_precision(precision: Literal["bfloat16", "float16"], split: Split) -> None:
    settings = replace(SETTINGS, precision=precision)
    records = list(train(state_of(split, "top"), split, settings))
    assert records[-1].step == SETTINGS.steps


@pytest.mark.parametrize("tune", ["top", "head"])
def test_maps_give_the_predictions_of_the_images(tune: Literal["top", "head"], split: Split) -> None:
    state = state_of(split, tune)
    assert state.bank is not None
    assert state.bank.test is not None
    assert split.test is not None
    of_images = predict_logits(state.ema, split.test.images, CPU)
    of_maps = predict_logits(state.ema, state.bank.test.transpose(0, 2, 3, 1), CPU)
    np.testing.assert_allclose(of_maps, of_images, atol=2e-2 * np.abs(of_images).max())


def test_a_bank_has_several_views_of_each_image_and_depends_on_no_seed(split: Split) -> None:
    bank = state_of(split, "top").bank
    assert bank is not None
    assert {name: len(views) for name, views in bank.views.items()} == {"weak": 2, "strong": 2}
    first, second = bank.views["strong"]
    assert first.shape == (24, 80, 2, 2)
    assert not np.array_equal(first, second)
    draw = bank.draw("weak", 24, torch.Generator().manual_seed(0))
    assert set(draw.tolist()) == {0, 1}
    taken = bank.take("weak", np.arange(24), draw).numpy()
    for row, view in enumerate(draw.tolist()):
        assert np.array_equal(taken[row], bank.views["weak"][view][row])


def test_a_bank_is_computed_once(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    state_of(split, "top")
    monkeypatch.setattr(banks_of_data, "opened_atomically", lambda *_: pytest.fail("computed again"))
    state_of(split, "top")


@pytest.mark.parametrize("change", ["images", "validation images", "views", "tune"])
def test_a_bank_is_computed_again_if_anything_changes(change: str, split: Split, tmp_path: Path) -> None:
    state_of(split, "top")
    if change == "images":
        state_of(replace(split, images=255 - split.images), "top")
    elif change == "validation images":
        assert split.validation is not None
        state_of(replace(split, validation=replace(split.validation, images=255 - split.validation.images)), "top")
    else:
        views: dict[str, Any] = {"cutout": 5} if change == "views" else {}
        state_of(split, "head" if change == "tune" else "top", **views)
    directories = list((tmp_path / "rankingmatch/banks").iterdir())
    training = [path for path in directories if (path / "weak-0.npy").exists()]
    assert len(training) == (1 if change == "validation images" else 2)  # which have a bank of their own
    assert len(directories) == {"images": 4, "validation images": 4, "views": 4, "tune": 6}[change]


def test_an_interrupted_bank_continues_with_the_next_file(tmp_path: Path) -> None:
    computed: list[str] = []

    def file(name: str, *, fails: bool = False) -> BankFile:
        def batches() -> Iterator[np.ndarray]:
            computed.append(name)
            yield np.ones((2, 1, 1, 1))
            if fails:
                raise KeyboardInterrupt
            yield np.zeros((1, 1, 1, 1))

        return BankFile(name, 3, batches)

    with pytest.raises(KeyboardInterrupt):
        read_bank(tmp_path / "bank", [file("a"), file("b", fails=True)])
    assert [path.name for path in (tmp_path / "bank").iterdir()] == ["a.npy"]
    arrays = read_bank(tmp_path / "bank", [file("a"), file("b")])
    assert computed == ["a", "b", "b"]
    assert arrays["b"].ravel().tolist() == [1, 1, 0]


def test_a_full_disk_gets_a_sentence_and_a_damaged_file_is_computed_again(tmp_path: Path) -> None:
    def full() -> Iterator[np.ndarray]:
        raise OSError(28, "No space left on device")
        yield

    with pytest.raises(DataError, match=r"cannot be written \(No space left on device\); free some space"):
        read_bank(tmp_path / "bank", [BankFile("a", 1, full)])
    assert list((tmp_path / "bank").iterdir()) == []
    np.save(tmp_path / "other.npy", np.ones((2, 1), dtype=np.float16))
    for content in (b"", b"no array", (tmp_path / "other.npy").read_bytes()):
        (tmp_path / "bank/a.npy").write_bytes(content)
        arrays = read_bank(tmp_path / "bank", [BankFile("a", 1, lambda: iter([np.ones((1, 1))]))])
        assert arrays["a"].tolist() == [[1]]
        (tmp_path / "bank/a.npy").unlink()


def test_only_the_last_banks_are_kept(tmp_path: Path) -> None:
    for number in range(banks_of_data.KEPT + 3):
        read_bank(tmp_path / str(number), [BankFile("a", 1, lambda: iter([np.ones((1, 1))]))])
    assert len(list(tmp_path.iterdir())) == banks_of_data.KEPT


def test_a_network_without_parts_is_refused(split: Split) -> None:
    with pytest.raises(ConfigError, match="tune top needs a network with a lower and an upper part"):
        initial_state(split, make_method("supervised"), NetworkSettings("small", tune="top"), VIEWS, SETTINGS, CPU)


@pytest.mark.parametrize("tune", ["top", "head", "all"])
def test_a_fitted_head_replaces_the_random_one_in_model_and_average(
    tune: Literal["top", "head", "all"], split: Split
) -> None:
    state = state_of(split, tune)
    inputs = split.images if state.bank is None else state.bank.views["weak"][0].transpose(0, 2, 3, 1)
    _, features = predict_logits_and_features(state.ema, inputs, CPU)
    assert features is not None
    expected = fitted_head(features, split.labels, 3, seed=0)
    start_head(state, split, seed=0)
    for model in (state.model, state.ema):
        tensors = model.state_dict()
        for name, values in expected.items():
            np.testing.assert_allclose(tensors[f"backbone.classifier.{name}"].numpy(), values, rtol=1e-3, atol=1e-4)


def fitted_state(split: Split, method: str, settings: TrainSettings) -> tuple[State, FittedTo]:
    """The state before training on a bank, with a fitted head, and what that was fitted to."""
    network = NetworkSettings("efficientnet-lite0", tune="top", initial_head="fitted")
    state = initial_state(split, make_method(method), network, VIEWS, settings, CPU)
    state.bank = make_bank(state, split, VIEWS)
    return state, start_head(state, split, seed=settings.seed)


def finished(split: Split, method: str, **given: Any) -> tuple[State, list[tuple[str, int, int | None]]]:
    """A state after training on a bank, and the progress that was reported."""
    settings, shown = replace(SETTINGS, **given), list[tuple[str, int, int | None]]()
    state, _ = fitted_state(split, method, settings)
    list(train(state, split, settings, lambda *amount: shown.append(amount)))
    return state, shown


def test_the_final_head_is_fitted_to_the_features_after_training(split: Split) -> None:
    trained, _ = finished(split, "fixmatch-ra")
    fitted, shown = finished(split, "fixmatch-ra", final_head="fitted")
    assert shown[-1] == ("fitting the head", len(split.images), len(split.images))
    assert trained.bank is not None
    _, features = predict_logits_and_features(trained.ema, trained.bank.views["weak"][0].transpose(0, 2, 3, 1), CPU)
    assert features is not None
    expected = fitted_head(features, split.labels, 3, seed=SETTINGS.seed)
    for name, value in fitted.ema.state_dict().items():
        if name.startswith("backbone.classifier."):
            np.testing.assert_allclose(value.numpy(), expected[name.rpartition(".")[2]], rtol=1e-3, atol=1e-4)
        else:
            assert torch.equal(value, trained.ema.state_dict()[name])
    for name, value in fitted.model.state_dict().items():  # what a longer training would go on from
        assert torch.equal(value, trained.model.state_dict()[name])


def test_without_unlabeled_images_the_final_head_is_the_trained_one(split: Split) -> None:
    trained, _ = finished(split, "supervised")
    fitted, shown = finished(split, "supervised", final_head="fitted")
    assert shown == []
    for name, value in fitted.ema.state_dict().items():
        assert torch.equal(value, trained.ema.state_dict()[name])


@pytest.mark.parametrize(("option", "value"), [("final_head", "fitted"), ("final_weights", "judged")])
def test_what_is_fitted_at_the_end_needs_an_initial_head_that_is(option: str, value: str, split: Split) -> None:
    settings = replace(SETTINGS, **{option: value})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"{option} {value} needs initial_head fitted; give both"):
        initial_state(split, make_method("fixmatch-ra"), NetworkSettings("small"), VIEWS, settings, CPU)


def test_the_final_weights_are_an_average_of_those_before_and_after_training(split: Split) -> None:
    before, _ = finished(split, "supervised", learning_rate=1e-12)
    after, _ = finished(split, "supervised")
    averaged, _ = finished(split, "supervised", trained_share=0.25)
    start, trained = before.ema.state_dict(), after.ema.state_dict()
    assert not torch.equal(start["backbone.classifier.weight"], trained["backbone.classifier.weight"])
    for name, value in averaged.ema.state_dict().items():
        np.testing.assert_allclose(value.numpy(), 0.75 * start[name].numpy() + 0.25 * trained[name].numpy(), atol=1e-6)
    for name, value in averaged.model.state_dict().items():  # what a longer training would go on from
        assert torch.equal(value, after.model.state_dict()[name])


def test_a_training_that_is_resumed_knows_the_weights_it_started_from(split: Split) -> None:
    whole, _ = finished(split, "fixmatch-ra", trained_share=0.5, final_head="fitted")
    settings = replace(SETTINGS, trained_share=0.5, final_head="fitted")
    first, _ = fitted_state(split, "fixmatch-ra", settings)
    next(train(first, split, settings))
    resumed, _ = fitted_state(split, "fixmatch-ra", replace(settings, seed=7))  # from other weights
    resumed.bank = first.bank
    restore(resumed, take_snapshot(first))
    list(train(resumed, split, settings))
    for name, value in whole.ema.state_dict().items():
        assert torch.equal(value, resumed.ema.state_dict()[name])


# --- evidence ------------------------------------------------------------------------------------------------


def test_the_average_is_kept_unless_another_share_has_a_clearly_lower_brier_score() -> None:
    labels = np.array([0, 1, 1, 0, 1])

    def of_truth(*values: float) -> np.ndarray:  # the probabilities of two classes by that of the true one
        return np.array([[p, 1 - p] if label == 0 else [1 - p, p] for p, label in zip(values, labels, strict=True)])

    average = of_truth(0.5, 0.6, 0.7, 0.5, 0.6)
    better, unsure = of_truth(0.6, 0.7, 0.8, 0.6, 0.8), of_truth(0.9, 0.2, 0.9, 0.2, 0.9)
    for start, trained, share in ((unsure, unsure, 0.5), (better, unsure, 0.0), (unsure, better, 1.0)):
        verdict = judge(np.stack([start, average, trained]), labels)
        assert (verdict.share, verdict.images) == (share, 5)
        for score, probabilities in zip(verdict[1:4], (start, average, trained), strict=True):
            squares = [(1 - p[label]) ** 2 for p, label in zip(probabilities, labels, strict=True)]
            assert score == pytest.approx(sum(squares) / 5)  # half the sum over two classes


JUDGED = replace(SETTINGS, final_weights="judged", final_head="fitted")


def test_a_trial_has_nothing_of_the_labels_that_it_predicts(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    split = replace(split, validation=None)
    seen: list[np.ndarray] = []

    def judge(probabilities: np.ndarray, labels: np.ndarray) -> Verdict:
        seen.append(probabilities)
        return Verdict(1.0, 0.5, 0.5, 0.5, len(labels))

    halves = evidence._halves(split, SETTINGS.seed)
    monkeypatch.setattr(evidence, "_halves", lambda *_: halves)
    monkeypatch.setattr(evidence, "judge", judge)
    monkeypatch.setattr(evidence, "STEPS", 1)
    assert np.array_equal(np.sort(np.concatenate(halves)), split.labeled_rows)
    assert [sorted(split.labels[half]) for half in halves] == [[0, 1, 2]] * 2
    others = split.labels.copy()
    others[halves[0]] = (others[halves[0]] + 1) % 3
    for labels in (split.labels, others):
        state, fitted = fitted_state(split, "fixmatch-ra", JUDGED)
        try_fine_tuning(state, replace(split, labels=labels), replace(JUDGED, final_head="trained"), fitted)
    first, second = np.split(seen[0], 2, axis=1), np.split(seen[1], 2, axis=1)
    assert np.array_equal(first[0], second[0])
    assert not np.array_equal(first[1], second[1])


def test_without_evidence_the_average_is_kept(split: Split) -> None:
    expected, _ = finished(split, "fixmatch-ra", trained_share=0.5)
    state, fitted = fitted_state(split, "fixmatch-ra", JUDGED)
    alone = replace(split, labeled_rows=split.labeled_rows[:3], drawn_rows=split.labeled_rows[:3], validation=None)
    assert try_fine_tuning(state, alone, JUDGED, fitted) is None
    unjudged = replace(JUDGED, final_head="trained")
    list(train(state, replace(split, validation=None), unjudged))
    for name, value in state.ema.state_dict().items():
        assert torch.equal(value, expected.ema.state_dict()[name])


def test_a_class_with_one_label_is_in_every_trial(split: Split) -> None:
    alone = split.labeled_rows[:4]  # classes 0, 1, 2, 0
    halves = evidence._halves(replace(split, labeled_rows=alone), 0)
    assert sorted(np.concatenate(halves)) == [0, 3]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_weights_of_the_verdict_are_kept(share: float, split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(JUDGED, final_head="trained")
    expected, _ = finished(split, "fixmatch-ra", trained_share=share)
    verdict = Verdict(share, 0.3, 0.3, 0.3, 6)
    for in_trials in (True, False):  # or by validation images, at the end
        state, _ = fitted_state(split, "fixmatch-ra", settings)
        state.verdict = verdict if in_trials else None
        monkeypatch.setattr(evidence, "judge", lambda *_: verdict)
        records = list(train(state, split, settings))
        assert (records[-1].step, records[-1].verdict) == (1 if in_trials and not share else 2, str(verdict))
        for name, value in state.ema.state_dict().items():
            assert torch.equal(value, expected.ema.state_dict()[name])
        snapshot, state.verdict = take_snapshot(state), None
        restore(state, snapshot)
        assert state.verdict == verdict
