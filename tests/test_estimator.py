"""The estimator keeps scikit-learn's conventions, on images, and learns by the house's loop."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_folders import class_folders
from of_tables import OfTables
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks
from tiny import tiny_images, tiny_settings, tiny_split, tiny_state

from rankingmatch import RankingMatchClassifier
from rankingmatch.core.errors import ConfigError, InputError, RunError
from rankingmatch.data import benchmark, suggested_settings
from rankingmatch.runs.config import resolve
from rankingmatch.runs.model import ModelInfo, save_model
from rankingmatch.training.loop import train

QUICK: dict[str, Any] = {"network": "wrn-10-1", "steps": 8, "batch_size": 6, "mu": 2, "threads": 1, "random_state": 0}


def quick(**others: Any) -> RankingMatchClassifier:
    return RankingMatchClassifier(**{**QUICK, **others})


@pytest.fixture(scope="module")
def fitted() -> RankingMatchClassifier:
    """An estimator that was fitted on `some` images; tests leave it as it is."""
    images, _, labels = some()
    return quick().fit(images, labels)


def some(count: int = 60, channels: int = 1, labeled: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images, their true classes, and the labels that are left."""
    images = tiny_images(count, 3, channels, seed=1)
    labels = images.labels.copy()
    labels[labeled:] = -1
    return images.images, images.labels, labels


# --- scikit-learn's own checks -------------------------------------------------------------------------------

NOT_FOR_IMAGES = {
    "check_n_features_in_after_fitting": "an image of another size is refused, in words about images, not features",
    "check_estimators_empty_data_messages": "an empty array is refused, in words about images, not features",
    "check_classifiers_classes": "it has classes -1 and 1, but -1 is unlabeled here",
    "check_classifier_data_not_an_array": "it needs pandas, which is not installed with the tests",
    "check_array_api_input": "arrays of other libraries are not taken",
    "check_methods_subset_invariance": "float32 rounds differently in batches of another size; see the test below",
}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [OfTables("supervised", steps=40, batch_size=16, learning_rate=0.05, threads=1)],
    expected_failed_checks=lambda _: NOT_FOR_IMAGES,
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_a_prediction_does_not_depend_on_the_other_images(fitted: RankingMatchClassifier) -> None:
    images, _, _ = some()
    alone = np.concatenate([fitted.predict_proba(images[row : row + 1]) for row in range(60)])
    np.testing.assert_allclose(alone, fitted.predict_proba(images), atol=1e-6)


# --- learning ------------------------------------------------------------------------------------------------


def test_it_is_the_same_loop_as_the_command_lines() -> None:
    split, settings = tiny_split(), tiny_settings()
    state = tiny_state(split, settings)
    for _ in train(state, split, settings):
        pass
    given = {"flip": False, "padding": 1, "cutout": 2, "evaluate_every": 3, "log_every": 2}
    classifier = quick(steps=6, learning_rate=0.05, hyperparameters=given).fit(split.images, split.labels)
    expected = state.ema.state_dict()
    assert all(np.array_equal(value, expected[name]) for name, value in classifier.model_.state_dict().items())


def test_the_seed_decides_and_nothing_else_does() -> None:
    images, _, labels = some()
    first, again, other = (quick(random_state=seed).fit(images, labels).predict_proba(images) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)
    generator = np.random.RandomState(3)
    quick(random_state=generator).fit(images, labels)
    assert generator.randint(2**31) != np.random.RandomState(3).randint(2**31)


def test_given_labels_are_kept_and_the_others_predicted(fitted: RankingMatchClassifier) -> None:
    images, truth, _ = some()
    assert fitted.transduction_.tolist()[:12] == truth[:12].tolist()
    assert fitted.transduction_.tolist()[12:] == fitted.predict(images[12:]).tolist()
    assert (fitted.n_iter_, fitted.image_shape_, fitted.n_features_in_) == (8, (8, 8, 1), 64)
    assert [line["step"] for line in fitted.history_][-1] == 8
    # Where every row has a label, they serve as unlabeled ones, too.
    assert quick().fit(images[:30], truth[:30]).transduction_.tolist() == truth[:30].tolist()


def test_validation_rows_are_not_learned_from_and_choose_the_weights() -> None:
    images, _, labels = some(labeled=15)
    classifier = quick(validation_fraction=0.4, steps=12, hyperparameters={"evaluate_every": 2}).fit(images, labels)
    errors = [line["val_error"] for line in classifier.history_]
    assert len(errors) == 6
    assert classifier.validation_score_ == pytest.approx(1 - min(errors) / 100)


def test_training_leaves_the_number_of_threads_as_it_was() -> None:
    images, _, labels = some(20)
    before = torch.get_num_threads()
    quick(threads=before + 1, steps=1).fit(images, labels)
    assert torch.get_num_threads() == before


def test_verbose_says_how_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    images, _, labels = some()
    quick(verbose=1).fit(images, labels)
    images_line, method_line, *_, last = capsys.readouterr().err.splitlines()
    assert images_line == "arrays: 3 classes, 8×8×1; 12 labeled, 48 unlabeled, 0 validation, 0 test"
    assert "rankingmatch-bm with wrn-10-1: 8 steps of 6 labeled + 12 unlabeled images" in method_line
    assert last.startswith("step 8/8")
    quick().fit(images, labels)
    assert capsys.readouterr() == ("", "")


# --- labels --------------------------------------------------------------------------------------------------

NAMES = np.array(["ant", "bee", "cat"])


@pytest.mark.parametrize(
    "kind", ["list with None", "list with ''", "array with NaN", "array of strings", "floats", "masked"]
)
def test_the_same_labels_in_every_form_give_the_same_model(kind: str, fitted: RankingMatchClassifier) -> None:
    images, truth, labels = some()
    names = NAMES[truth].tolist()
    forms: dict[str, Any] = {
        "list with None": [*names[:12], *[None] * 48],
        "list with ''": [*names[:12], *[""] * 48],
        "array with NaN": np.array([*names[:12], *[float("nan")] * 48], dtype=object),
        "array of strings": np.where(labels >= 0, NAMES[truth], ""),
        "floats": np.where(labels >= 0, labels * 10.0, np.nan),
        "masked": np.ma.array(NAMES[truth], mask=labels < 0),
    }
    y = forms[kind]
    classifier = quick().fit(images, y)
    assert np.array_equal(classifier.predict_proba(images), fitted.predict_proba(images))
    assert classifier.classes_.tolist() == ([0.0, 10.0, 20.0] if kind == "floats" else NAMES.tolist())
    assert classifier.transduction_[:12].tolist() == list(y[:12])
    assert classifier.score(images, y) == classifier.score(images[:12], y[:12])


# --- images and their scale ----------------------------------------------------------------------------------


def test_every_way_to_write_an_image_gives_the_same_model(fitted: RankingMatchClassifier) -> None:
    images, _, labels = some()
    expected = fitted.predict_proba(images)
    same = [images[..., 0], images.astype(np.int64), images.astype(np.float32), images / 255, images.tolist()]
    for form in (*same, np.fromiter(images, object)):  # the last is what a column of a DataFrame gives
        classifier = quick().fit(form, labels)
        assert np.array_equal(classifier.predict_proba(form), expected)
        assert np.array_equal(classifier.predict_proba(images), expected)  # uint8 always is 0…255
    several = np.random.default_rng(0).integers(0, 256, (20, 8, 9, 7)).astype(np.uint8)
    assert quick(steps=1).fit(several, np.arange(20) % 2).image_shape_ == (8, 9, 7)


@pytest.mark.parametrize("kind", [bool, np.int64, np.uint8, float])
def test_zeros_and_ones_are_the_same_images_in_every_type(kind: type) -> None:
    images, _, labels = some()
    black_or_white = images > 100
    classifier = quick().fit(black_or_white.astype(kind), labels)
    expected = classifier.predict_proba(black_or_white)
    for other in (*map(black_or_white.astype, (np.int64, np.uint8, float)), 255 * black_or_white):
        assert np.array_equal(classifier.predict_proba(other), expected)
    dark = images[:2] / 255 / 20  # as uint8 not only 0 and 1, which would be black and white
    assert np.array_equal(
        classifier.predict_proba(dark), classifier.predict_proba(np.rint(dark * 255).astype(np.uint8))
    )


def test_another_scale_than_in_fit_is_never_silent(fitted: RankingMatchClassifier) -> None:
    images, _, labels = some()
    black_or_white = images > 100
    expected = fitted.predict_proba(np.uint8(255) * black_or_white)
    assert np.array_equal(fitted.predict_proba(black_or_white), expected)
    with pytest.raises(InputError, match=r"floats in 0…1, but in fit they were in 0…255; multiply X by 255"):
        fitted.predict_proba(images / 255)
    for kind in (np.int64, np.uint8):
        with pytest.warns(UserWarning, match="only the integers 0 and 1, but in fit white was 255"):
            fitted.predict_proba(black_or_white.astype(kind))
    with pytest.warns(UserWarning, match=r"brightest pixel of X is 16 of 255"):
        quick(steps=1).fit(images // 16 + 1, labels)


# --- mistakes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x.reshape(60, -1), y), r"shape \(60, 64\); images are .* X.reshape\(-1, 8, 8\)"),
        (lambda x, y: (x.astype(int) - 300, y), "values from -300 to"),
        (lambda x, y: (x.astype(float) * 2, y), "floats in 0…255, or floats in 0…1"),
        (lambda x, y: (np.where(x > 90, np.nan, x), y), "contains NaN"),
        (lambda x, y: (x.astype(str), y), "has the type <U"),
        (lambda x, y: (np.ones((60, 3, 32, 32), np.uint8), y), r"channels-first; use `X.transpose\(0, 2, 3, 1\)`"),
        (lambda x, y: (np.ones((60, 1, 8, 8), np.uint8), y), "looks channels-first"),
        (lambda x, y: ([x[0], x[1, :7], *x[2:]], y), "all images must have one size"),
        (lambda x, y: (iter(x), y), "^X is a "),
        (lambda x, y: (x[:-1], y), "59 images and y 60 labels"),
        (lambda x, y: (x, None), "target y is None"),
        (lambda x, y: (x, np.full(60, -1)), "no row of y has a label"),
        (lambda x, y: (x, np.where(y == 0, 0, -1)), "only one class"),
        (lambda x, y: (x, y + 0.5), "continuous"),
        (lambda x, y: (x, np.stack([y, y], 1)), "one label per image"),
        (lambda x, y: (x, np.where(y < 0, "nan", "a")), "the string 'nan'"),
        (lambda x, y: (x, np.array(["a", -1] * 30)), "the string '-1'"),
        (lambda x, y: (x, ["a", 1] * 30), "either numbers or strings"),
        ({"method": "rankingmatch"}, "unknown method"),
        ({"method": None}, "^method is None"),
        ({"hyperparameters": 5}, "^hyperparameters is 5"),
        ({"validation_fraction": "half"}, "^validation_fraction is 'half'"),
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0"),
        ({"validation_fraction": 0.9}, "validation_fraction 0.9 .* without any label"),
        ({"network": "resnet"}, "unknown network"),
        ({"steps": 0}, r"^steps is 0; it must be in \[1, inf\)"),
        ({"steps": "many"}, "^steps is 'many'; it must be of type int"),
        ({"random_state": -1}, "^seed is -1"),
        ({"device": "warp"}, "^device warp cannot be used"),
        ({"hyperparameters": {"treshold": 1}}, "unknown setting 'treshold'; did you mean 'threshold'"),
        ({"hyperparameters": {5: 1}}, "hyperparameters contains 5"),
        ({"hyperparameters": {"threshold": 2}}, "^threshold is 2"),
        ({"hyperparameters": {"temperature": 0.5}}, "temperature is not used by the method 'rankingmatch-bm'"),
        ({"hyperparameters": {"steps": 5}}, "'steps', which is a parameter of the estimator"),
        ({"hyperparameters": {"seed": 5}}, "random_state"),
        ({"hyperparameters": {"labels": 5}}, "'labels', which X and y determine"),
        ({"hyperparameters": {"unlabeled": "x"}}, "hyperparameters contains 'unlabeled'"),
        ({"hyperparameters": {"compile": True}}, "hyperparameters contains 'compile'"),
        ({"hyperparameters": {"license": "x"}}, "hyperparameters contains 'license'"),
    ],
)
def test_what_cannot_be_fitted_is_named_in_pythons_words(change: Any, message: str) -> None:
    images, _, labels = some()
    given, (x, y) = (change, (images, labels)) if isinstance(change, dict) else ({}, change(images, labels))
    with pytest.raises((InputError, ConfigError), match=message):
        quick(**given).fit(x, y)


def test_what_cannot_be_predicted_scored_or_saved_is_named(fitted: RankingMatchClassifier, tmp_path: Path) -> None:
    images, truth, _ = some()
    for call in (lambda: quick().predict(images), lambda: quick().save(tmp_path / "model")):
        with pytest.raises(NotFittedError):
            call()
    with pytest.raises(InputError, match="X has 7×8×1 images, but RankingMatchClassifier was fitted on 8×8×1"):
        fitted.predict(images[:, :7])
    with pytest.raises(InputError, match="nothing to score"):
        fitted.score(images, np.full(60, -1))
    with pytest.raises(InputError, match=r"classes are numbers .* but y contains strings"):
        fitted.score(images, truth.astype(str))
    with pytest.raises(RunError, match="nowhere/model cannot be written"):
        fitted.save(tmp_path / "nowhere/model")


# --- scikit-learn's tools ------------------------------------------------------------------------------------


def test_the_parameters_of_a_pipeline_are_searched_and_scored_on_the_labeled_rows() -> None:
    images, _, labels = some(labeled=24)
    pipeline = make_pipeline(FunctionTransformer(lambda x: 255 - x), quick())
    grid = {"steps": np.array([1, 6]), "hyperparameters": [None, {"threshold": 0.6}]}
    search = GridSearchCV(pipeline, {f"rankingmatchclassifier__{name}": grid[name] for name in grid}, cv=3)
    search.fit(images, labels)
    scores = np.stack([search.cv_results_[f"split{fold}_test_score"] for fold in range(3)])
    assert np.allclose(8 * scores, np.rint(8 * scores))  # eight labeled rows in each fold
    chosen = clone(search.best_estimator_)[-1]
    assert np.array_equal(chosen.fit(255 - images, labels).predict(255 - images), search.predict(images))


def test_a_weighted_score_counts_the_weights(fitted: RankingMatchClassifier) -> None:
    images, truth, _ = some()
    right, weights = fitted.predict(images) == truth, np.arange(60.0)
    assert fitted.score(images, truth, weights) == pytest.approx(weights[right].sum() / weights.sum())


# --- saving --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [False, True])
def test_what_is_saved_predicts_the_same(names: bool, tmp_path: Path) -> None:
    images, truth, labels = some()
    y = np.where(labels >= 0, NAMES[truth], "") if names else labels
    given = {"threshold": np.float64(0.8), "operations": np.int64(1)}
    classifier = quick(hyperparameters=given).fit(images / 255, y)
    classifier.save(tmp_path / "model.safetensors")
    loaded = RankingMatchClassifier.load(str(tmp_path / "model.safetensors"))
    assert loaded.get_params() == classifier.get_params()
    assert loaded.classes_.dtype == classifier.classes_.dtype
    assert np.array_equal(loaded.predict_proba(images / 255), classifier.predict_proba(images / 255))
    assert clone(loaded).fit(images / 255, y).predict(images).tolist() == loaded.predict(images).tolist()


def test_a_runs_model_is_loaded_with_its_class_names(tmp_path: Path) -> None:
    state = tiny_state(tiny_split(), tiny_settings())
    save_model(tmp_path / "model.safetensors", state.ema, ModelInfo("wrn-10-1", ("a", "b", "ç"), 1, 8, 8))
    loaded = RankingMatchClassifier.load(tmp_path / "model.safetensors")
    assert loaded.classes_.tolist() == ["a", "b", "ç"]
    assert loaded.network == "wrn-10-1"
    assert set(loaded.predict(some()[0])) <= {"a", "b", "ç"}


def test_a_file_that_is_no_estimator_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with pytest.raises(RunError, match="no such model"):
        RankingMatchClassifier.load(path)
    state = tiny_state(tiny_split(), tiny_settings())
    for about in ({"parameters": {"stepz": 1}}, {"parameters": {}, "classes": [1], "white": 1}):
        save_model(path, state.ema, ModelInfo("wrn-10-1", ("a", "b", "c"), 1, 8, 8, about))
        with pytest.raises(RunError, match="not an estimator of this version"):
            RankingMatchClassifier.load(path)


# --- settings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["digits", "cifar10", "stl10", "tiny-imagenet"])
def test_the_suggestions_by_size_are_what_the_named_datasets_of_that_size_have(name: str) -> None:
    """But for the networks of larger images, which are smaller here."""
    chosen = benchmark(name)
    suggested = suggested_settings(*chosen.shape, count=1500)
    defaults: dict[str, object] = {"padding": 4, "cutout": 16, "flip": True, "learning_rate": 0.03}
    if name == "digits":
        defaults |= {"network": "small", "batch_size": 32, "steps": 1000}
    for option, default in defaults.items():
        assert suggested[option] == chosen.settings.get(option, default), option


def test_balanced_draws_rare_classes_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def noted(state: Any, split: Any, settings: Any) -> Any:
        drawn.append(np.bincount(split.labels[split.drawn_rows]).tolist())
        return train(state, split, settings)

    monkeypatch.setattr("rankingmatch.estimator.train", noted)
    images, truth, _ = some()
    rare = np.where(truth == 0, 0, -1)
    rare[[int(np.flatnonzero(truth == label)[0]) for label in (1, 2)]] = 1, 2
    for balanced in (False, True):
        quick(hyperparameters={"balanced": balanced}).fit(images, rare)
    most = int((truth == 0).sum())
    assert drawn == [[most, 1, 1], [most, most, most]]


@pytest.mark.parametrize("network", ["efficientnet-lite0", "efficientnet-lite2"])
def test_settings_for_photographs_are_those_of_the_command_line(network: str, tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "photos", each=4, size=(64, 64))
    given = {"network": network, "image_size": 64}
    theirs = resolve(str(folder), "rankingmatch-bm", given).config
    ours = RankingMatchClassifier(network=network, random_state=0)._config((8, 64, 64, 3))
    assert ours.hyperparameters == theirs.hyperparameters
    assert ours.hyperparameters["threshold"] == 0.8
    assert ours.network == theirs.network
    assert ours.training == theirs.training
    assert ours.views == theirs.views
    random = RankingMatchClassifier(network=network, hyperparameters={"pretrained": False})._config((8, 64, 64, 3))
    assert (random.network.pretrained, random.network.tune, random.network.initial_head) == (False, "all", "random")
