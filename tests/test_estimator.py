"""The estimator keeps scikit-learn's conventions, on images, and learns by the house's loop."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_folders import class_folders
from of_tables import OfTables
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks
from tiny import tiny_images, tiny_settings, tiny_split, tiny_state

from rankingmatch import RankingMatchClassifier
from rankingmatch.core.errors import ConfigError, InputError, RunError
from rankingmatch.data import benchmark, suggested_settings
from rankingmatch.networks import make_classifier
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


def test_the_estimator_says_that_it_takes_no_tables() -> None:
    tags = quick().__sklearn_tags__()
    assert not tags.input_tags.two_d_array
    assert tags.input_tags.three_d_array
    assert tags.estimator_type == "classifier"


# --- learning ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_learns_the_digits_from_forty_labels_better_than_from_these_alone() -> None:
    digits = benchmark("digits").load()
    assert digits.test is not None
    train_images, labels = digits.train.images, digits.train.labels
    kept = np.concatenate([np.flatnonzero(labels == number)[:4] for number in range(10)])
    y = np.full(len(labels), -1)
    y[kept] = labels[kept]
    scores = {}
    for method in ("supervised", "fixmatch-ra"):
        classifier = RankingMatchClassifier(method, steps=120, batch_size=16, threads=1, random_state=0).fit(
            train_images, y
        )
        scores[method] = classifier.score(digits.test.images, digits.test.labels)
    assert scores["fixmatch-ra"] > scores["supervised"] + 0.02
    assert scores["fixmatch-ra"] > 0.8


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


@pytest.mark.parametrize("nothing", [None, "", float("nan")])
@pytest.mark.parametrize("container", ["list", "object array"])
def test_names_with_a_missing_one_are_unlabeled(nothing: Any, container: str) -> None:
    images, truth, _ = some()
    y: Any = [str(name) for name in NAMES[truth]]
    y[12:] = [nothing] * 48
    classifier = quick().fit(images, np.array(y, dtype=object) if container == "object array" else y)
    assert classifier.classes_.tolist() == NAMES.tolist()
    assert classifier.transduction_[:12].tolist() == y[:12]
    assert set(classifier.predict(images)) <= set(NAMES)
    assert classifier.score(images, y) == classifier.score(images[:12], NAMES[truth[:12]])


def test_the_same_labels_as_numbers_texts_or_floats_give_the_same_model(fitted: RankingMatchClassifier) -> None:
    images, truth, labels = some()
    expected = fitted.predict_proba(images)
    assert np.array_equal(quick().fit(images, np.where(labels >= 0, NAMES[truth], "")).predict_proba(images), expected)
    model = quick().fit(images, np.where(labels >= 0, labels * 10.0, np.nan))
    assert np.array_equal(model.predict_proba(images), expected)
    assert model.classes_.tolist() == [0.0, 10.0, 20.0]


# --- images --------------------------------------------------------------------------------------------------


def test_every_way_to_write_an_image_gives_the_same_model(fitted: RankingMatchClassifier) -> None:
    images, _, labels = some()
    expected = fitted.predict_proba(images)
    for form in (images[..., 0], images.astype(np.int64), images.astype(np.float32), images / 255, images.tolist()):
        classifier = quick().fit(form, labels)
        assert np.array_equal(classifier.predict_proba(form), expected)
        assert np.array_equal(classifier.predict_proba(images), expected)  # uint8 always is 0…255


@pytest.mark.parametrize("shape", [(8, 8, 3), (8, 9, 7)])
def test_images_of_several_channels_are_taken(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, *shape)).astype(np.uint8)
    assert quick(steps=1).fit(images, np.arange(20) % 2).image_shape_ == shape


def test_a_dark_picture_is_read_on_the_scale_of_fit() -> None:
    images, _, labels = some()
    dark = images[:2] / 255 / 20  # as uint8 not only 0 and 1, which would be black and white
    classifier = quick().fit(images / 255, labels)
    expected = classifier.predict_proba(np.rint(dark * 255).astype(np.uint8))
    assert np.array_equal(classifier.predict_proba(dark), expected)
    with pytest.raises(InputError, match="multiply X by 255"):
        quick().fit(images.astype(float), labels).predict(dark)


def test_images_that_are_nearly_black_are_warned_about() -> None:
    images, _, labels = some()
    with pytest.warns(UserWarning, match=r"brightest pixel of X is 16 of 255"):
        quick(steps=1).fit(images // 16 + 1, labels)


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
        (lambda x, y: (x[:0], y[:0]), "no row of y has a label|0 sample"),
        (lambda x, y: (x[:-1], y), "59 images and y 60 labels"),
        (lambda x, y: (x, None), "target y is None"),
        (lambda x, y: (x, np.full(60, -1)), "no row of y has a label"),
        (lambda x, y: (x, np.where(y == 0, 0, -1)), "only one class"),
        (lambda x, y: (x, y + 0.5), "continuous"),
        (lambda x, y: (x, np.stack([y, y], 1)), "one label per image"),
        (lambda x, y: (x, np.where(y < 0, "nan", "a")), "the string 'nan'"),
        (lambda x, y: (x, np.array(["a", "None"] * 30)), "the string 'None'"),
        (lambda x, y: (x, np.array(["a", -1] * 30)), "the string '-1'"),
        (lambda x, y: (x, ["a", 1] * 30), "either numbers or strings"),
    ],
)
def test_what_cannot_be_learned_from_is_named(change: Any, message: str) -> None:
    images, _, labels = some()
    with pytest.raises(InputError, match=message):
        quick().fit(*change(images, labels))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "rankingmatch"}, "unknown method"),
        ({"method": None}, "^method is None"),
        ({"method": 5}, "^method is 5"),
        ({"hyperparameters": 5}, "^hyperparameters is 5"),
        ({"validation_fraction": "half"}, "^validation_fraction is 'half'"),
        ({"network": "resnet"}, "unknown network"),
        ({"steps": 0}, r"^steps is 0; it must be in \[1, inf\)"),
        ({"steps": "many"}, "^steps is 'many'; it must be of type int"),
        ({"random_state": -1}, "^seed is -1"),
        ({"device": "warp"}, "^device warp cannot be used"),
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0"),
        ({"hyperparameters": {"treshold": 1}}, "unknown setting 'treshold'; did you mean 'threshold'"),
        ({"hyperparameters": {"threshold": 2}}, "^threshold is 2"),
        ({"hyperparameters": {"temperature": 0.5}}, "temperature is not used by the method 'rankingmatch-bm'"),
        ({"hyperparameters": {"steps": 5}}, "'steps', which is a parameter of the estimator"),
        ({"hyperparameters": {"labels": 5}}, "'labels', which X and y determine"),
    ],
)
def test_a_parameter_that_cannot_be_is_named_in_pythons_words(given: dict[str, Any], message: str) -> None:
    images, _, labels = some(20)
    with pytest.raises(ConfigError, match=message):
        quick(**given).fit(images, labels)


def test_images_must_be_there_at_once() -> None:
    images, _, labels = some(20)
    with pytest.raises(ConfigError, match=r"^X is a generator"):
        quick().fit((image for image in images), labels)


def test_a_fraction_that_leaves_a_class_without_labels_is_refused() -> None:
    images, _, labels = some(labeled=3)
    with pytest.raises(InputError, match="validation_fraction"):
        quick(validation_fraction=0.5).fit(images, labels)


def test_images_of_another_size_are_refused(fitted: RankingMatchClassifier) -> None:
    with pytest.raises(InputError, match="X has 7×8×1 images, but RankingMatchClassifier was fitted on 8×8×1"):
        fitted.predict(some()[0][:, :7])


def test_an_unfitted_estimator_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        quick().predict(some()[0])
    with pytest.raises(NotFittedError):
        quick().save(tmp_path / "model")


# --- scikit-learn's tools ------------------------------------------------------------------------------------


def test_cross_validation_learns_from_unlabeled_rows_and_scores_the_labeled_ones() -> None:
    images, _, labels = some(labeled=24)
    scores = cross_val_score(quick(), images, labels, cv=3)
    assert scores.shape == (3,)
    assert {round(score * 8, 6) % 1 for score in scores} == {0}  # eight labeled rows in each fold


def test_a_grid_of_parameters_is_searched() -> None:
    images, _, labels = some(labeled=24)
    grid = {"steps": np.array([1, 6]), "hyperparameters": [None, {"threshold": 0.6}]}
    search = GridSearchCV(quick(), grid, cv=2).fit(images, labels)
    assert set(search.best_params_) == set(grid)
    assert search.predict(images).shape == (60,)


def test_it_stands_at_the_end_of_a_pipeline() -> None:
    images, _, labels = some()
    pipeline = make_pipeline(FunctionTransformer(lambda x: 255 - x), quick())
    expected = quick().fit(255 - images, labels).predict(255 - images)
    assert pipeline.fit(images, labels).predict(images).tolist() == expected.tolist()
    assert clone(pipeline)[-1].get_params() == quick().get_params()


def test_a_weighted_score_counts_the_weights_and_needs_labels_of_the_same_kind(fitted: RankingMatchClassifier) -> None:
    images, truth, _ = some()
    right, weights = fitted.predict(images) == truth, np.arange(60.0)
    assert fitted.score(images, truth, weights) == pytest.approx(weights[right].sum() / weights.sum())
    with pytest.raises(InputError, match="nothing to score"):
        fitted.score(images, np.full(60, -1))
    with pytest.raises(InputError, match=r"classes are numbers .* but y contains strings"):
        fitted.score(images, truth.astype(str))


# --- saving --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [False, True])
def test_what_is_saved_predicts_the_same(names: bool, tmp_path: Path) -> None:
    images, truth, labels = some()
    y = np.where(labels >= 0, NAMES[truth], "") if names else labels
    classifier = quick(hyperparameters={"threshold": 0.8}).fit(images / 255, y)
    classifier.save(tmp_path / "model.safetensors")
    loaded = RankingMatchClassifier.load(str(tmp_path / "model.safetensors"))
    assert loaded.get_params() == classifier.get_params()
    assert loaded.classes_.dtype == classifier.classes_.dtype
    assert np.array_equal(loaded.predict_proba(images / 255), classifier.predict_proba(images / 255))
    assert np.array_equal(loaded.predict(images), classifier.predict(images))
    assert clone(loaded).fit(images / 255, y).predict(images).tolist() == classifier.predict(images).tolist()


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


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    images, _, labels = some(20)
    given = {"threshold": np.float64(0.9), "operations": np.int64(1)}
    classifier = quick(steps=1, hyperparameters=given).fit(images, labels)
    with pytest.raises(RunError, match="nowhere/model cannot be written"):
        classifier.save(tmp_path / "nowhere/model")
    classifier.save(tmp_path / "model")
    assert RankingMatchClassifier.load(tmp_path / "model").hyperparameters == given


def test_a_fitted_estimator_survives_pickle(fitted: RankingMatchClassifier) -> None:
    images, _, _ = some()
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(images), fitted.predict_proba(images))


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


@pytest.mark.parametrize("name", ["unlabeled", "labels_csv", "compile", "tensorboard", "checkpoint_steps", "license"])
def test_options_that_would_do_nothing_are_refused(name: str) -> None:
    images, _, labels = some()
    with pytest.raises(ConfigError, match=f"hyperparameters contains '{name}'"):
        quick(hyperparameters={name: "x"}).fit(images, labels)


def test_a_pretrained_network_is_fine_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    images = np.random.default_rng(0).integers(0, 256, (12, 64, 64, 3)).astype(np.uint8)
    labels = np.array([0, 1, 0, 1, *[-1] * 8])
    given: dict[str, Any] = {"steps": 1, "batch_size": 4, "mu": 1, "threads": 1, "random_state": 0}
    fitted = RankingMatchClassifier("fixmatch-ra", network="efficientnet-lite0", **given).fit(images, labels)
    fresh = make_classifier("efficientnet-lite0", 2, pretrained=True)
    ours, theirs = fitted.model_.backbone.state_dict(), fresh.backbone.state_dict()
    assert torch.equal(ours["blocks.0.project.conv.weight"], theirs["blocks.0.project.conv.weight"])  # frozen
    assert not torch.equal(ours["blocks.15.project.conv.weight"], theirs["blocks.15.project.conv.weight"])  # trained
    assert fitted.predict_proba(images).shape == (12, 2)


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


def test_random_weights_can_be_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    clf = RankingMatchClassifier(network="efficientnet-lite0", hyperparameters={"pretrained": False})
    network = clf._config((8, 64, 64, 3)).network
    assert (network.pretrained, network.tune, network.initial_head) == (False, "all", "random")
    assert caplog.messages == []


# --- scales --------------------------------------------------------------------------------------------------

# Images of 0 and 1 in every type, and of 0 and 255.
SAME = {"booleans": np.bool_, "integers": np.int64, "uint8": np.uint8, "floats": np.float64}


def stripes() -> tuple[np.ndarray, np.ndarray]:
    """Images of 0 and 1 with bright rows at the top, in the middle or at the bottom."""
    labels = np.arange(60) % 3
    return np.repeat(np.eye(3, dtype=np.int64), 3, axis=1)[labels][:, :, None] * np.ones(9, np.int64), labels


def fitted_on(images: np.ndarray) -> RankingMatchClassifier:
    classifier = RankingMatchClassifier(steps=40, network="small", threads=1, random_state=0)
    return classifier.fit(images, stripes()[1])


@pytest.mark.parametrize("kind", SAME.values(), ids=SAME)
def test_zeros_and_ones_are_the_same_images_in_every_type(kind: type) -> None:
    images, _ = stripes()
    classifier = fitted_on(images.astype(kind))
    expected = classifier.predict_proba(images.astype(kind))
    for other in (*map(images.astype, SAME.values()), 255 * images):
        assert np.array_equal(classifier.predict_proba(other), expected)


@pytest.mark.parametrize("white", [255, 255.0])
def test_another_scale_than_in_fit_is_never_silent(white: float) -> None:
    images, _ = stripes()
    classifier = fitted_on(white * images)
    expected = classifier.predict_proba(white * images)
    assert np.array_equal(classifier.predict_proba(images.astype(bool)), expected)
    with pytest.raises(InputError, match=r"floats in 0…1, but in fit they were in 0…255"):
        classifier.predict_proba(images.astype(float))
    for kind in (np.int64, np.uint8):
        with pytest.warns(UserWarning, match="only the integers 0 and 1, but in fit white was 255"):
            classifier.predict_proba(images.astype(kind))
