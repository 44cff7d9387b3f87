"""`RankingMatchClassifier`: the training loop behind scikit-learn's interface."""

import copy
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from rankingmatch.core.errors import ConfigError, InputError, RunError
from rankingmatch.core.randomness import Purpose, numpy_generator
from rankingmatch.data import UNLABELED, Dataset, Images, Split, assemble_split
from rankingmatch.data.arrays import as_uint8, encode_labels, image_array, label_array, missing_labels, white_of
from rankingmatch.data.presets import suggested_settings
from rankingmatch.methods import find_method, make_method
from rankingmatch.networks import outputs
from rankingmatch.runs.checkpoint import ModelCard, load_model, save_model
from rankingmatch.runs.config import Config, ExecutionSettings, assemble
from rankingmatch.runs.directory import flat
from rankingmatch.runs.display import Lines
from rankingmatch.training.loop import train
from rankingmatch.training.state import initial_state

# Options of `rankingmatch train` that X, y or a parameter of its own say here.
_SAID_OTHERWISE = (
    *("labels", "validation", "split", "unlabeled", "labels_csv", "image_size", "data_dir", "include_labeled", "seed"),
)
# Options of a run directory, which an estimator has not.
_OF_RUNS = ("checkpoint_seconds", "checkpoint_steps", "compile", "measure_steps", "licence", "tensorboard")
_OWN_PARAMETERS = ("network", "steps", "batch_size", "mu", "learning_rate", "device", "threads")

DARK = 64  # images nowhere brighter than this are warned about


class RankingMatchClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """An image classifier that learns from a few labeled and many unlabeled images.

    `fit(X, y)` takes images (n, height, width[, channels]): whole numbers 0…255, or floats in 0…1 or 0…255. `y` has -1
    for unlabeled rows; where labels are texts, None, "" or NaN. Parameters left None follow the images' size and
    number; `hyperparameters` has whatever else `rankingmatch train` takes, such as `{"threshold": 0.9}`.

    `validation_fraction` of the labeled rows are not trained on; the weights that do best on them are kept, instead
    of the last ones. Where every row has a label, the images serve as the unlabeled ones, too.

    Fitted: `classes_`, `transduction_` (a label for every training row: the given ones, else the predicted), `model_`,
    `image_shape_`, `n_features_in_` (the numbers in an image), `n_iter_` (steps), `history_` (a dict per evaluation),
    and `validation_score_` if there is validation.
    """

    def __init__(
        self,
        method: str = "rankingmatch-bm",
        *,
        network: str | None = None,
        steps: int | None = None,
        batch_size: int | None = None,
        mu: int | None = None,
        learning_rate: float | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        validation_fraction: float = 0.0,
        device: str = "auto",
        threads: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.network = network
        self.steps = steps
        self.batch_size = batch_size
        self.mu = mu
        self.learning_rate = learning_rate
        self.hyperparameters = hyperparameters
        self.validation_fraction = validation_fraction
        self.device = device
        self.threads = threads
        self.random_state = random_state
        self.verbose = verbose

    # --- learning ---------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Learn from images and the labels that some of them have."""
        images = image_array(X)
        classes, labels = encode_labels(y)
        if len(images) != len(labels):
            raise InputError(f"X has {len(images)} images and y {len(labels)} labels; there must be one for each")
        if len(classes) < 2:
            raise InputError(f"y has only one class, {classes[0]!r}; a classifier needs at least two classes")
        white = white_of(images)
        images = as_uint8(images, white)
        brightest = images[:: max(1, len(images) // 1000)].max()
        if brightest <= DARK:
            warnings.warn(
                f"the brightest pixel of X is {brightest} of 255: are the images on another scale? Bring white to "
                "255, or divide by the largest value",
                stacklevel=2,
            )
        with _parameter_names():
            config = self._config(images.shape)
            split = self._split(images, labels, classes, config)
            self._train(split, config)
        self.classes_, self._white = classes, white
        self.image_shape_ = images.shape[1:]
        self.n_features_in_ = int(np.prod(self.image_shape_))
        self.transduction_ = classes[labels]
        unlabeled = labels == UNLABELED
        if unlabeled.any():
            self.transduction_[unlabeled] = classes[self._probabilities(images[unlabeled]).argmax(1)]
        return self

    def _config(self, shape: tuple[int, ...]) -> Config:
        """Every setting: given, else wanted by the method, else suggested by the images, else the default."""
        count, height, width, channels = shape
        given = {name: _plain(getattr(self, name)) for name in _OWN_PARAMETERS}
        given = {name: value for name, value in given.items() if value is not None}
        others = {} if self.hyperparameters is None else dict(self.hyperparameters)
        for name in others:
            if name in _OWN_PARAMETERS:
                raise ConfigError(f"hyperparameters has '{name}', which is a parameter of its own; give it as that")
            if name in _SAID_OTHERWISE:
                raise ConfigError(f"hyperparameters has '{name}', which X, y or a parameter of its own says; remove it")
            if name in _OF_RUNS:
                raise ConfigError(f"hyperparameters has '{name}', which only `rankingmatch train` can do; remove it")
        suggested = suggested_settings(height, width, channels, count)
        if others.get("epochs") is not None:
            if "steps" in given:
                raise ConfigError("hyperparameters has 'epochs', and steps is given: they say the same thing twice")
            del suggested["steps"]
        values = {**suggested, **find_method(self.method).preset, **given}
        values |= {name: _plain(value) for name, value in others.items()}
        return assemble("arrays", self.method, {**values, "seed": self._seed()})

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _split(self, images: np.ndarray, labels: np.ndarray, classes: np.ndarray, config: Config) -> Split:
        known = np.flatnonzero(labels != UNLABELED)
        held_out = _held_out(labels, known, self.validation_fraction, config.training.seed)
        names = tuple(str(name) for name in classes)
        dataset = Dataset(names, Images(images, labels))
        everything = len(known) == len(labels)
        labeled, balanced = np.setdiff1d(known, held_out), config.data.balanced
        return assemble_split(dataset, labeled, held_out, include_labeled=everything, balanced=balanced)

    def _train(self, split: Split, config: Config) -> None:
        """Consume the loop's records, and keep the last weights or the best ones."""
        device = config.execution.torch_device()
        method = make_method(config.method, config.hyperparameters)
        lines, history, best = Lines(), [], None
        with _on_threads(config.execution.threads):
            state = initial_state(split, method, config.network, config.views, config.training, device)
            if self.verbose:
                lines.say(_headline(split, config))
            for record in train(state, split, config.training):
                if self.verbose:
                    lines.update(record)
                if record.evaluation:
                    history.append(flat(record))
                    if record.evaluation.best:
                        best = copy.deepcopy(state.ema)
        self.model_ = (best or state.ema).cpu()
        self.history_, self.n_iter_, self._network = history, state.step, config.network.network
        self.__dict__.pop("validation_score_", None)  # of an earlier fit
        if state.best_error is not None:
            self.validation_score_ = 1 - state.best_error / 100

    # --- predicting -------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """(n, classes) probabilities in the order of `classes_`."""
        check_is_fitted(self, "model_")
        images = image_array(X)
        if images.shape[1:] != self.image_shape_:
            have, want = ("×".join(map(str, shape)) for shape in (images.shape[1:], self.image_shape_))
            raise InputError(f"X has {have} images, but {type(self).__name__} was fitted on {want}; resize them")
        return self._probabilities(as_uint8(images, self._white))

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The likeliest class of each image."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(1)]  # type: ignore[no-any-return]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """The share of right predictions, of the rows that have a label; the others do not count."""
        labels = label_array(y)
        known = ~missing_labels(labels)
        if not known.any():
            raise InputError("no row of y has a label, so there is nothing to score")
        predicted = self.predict(X)
        if len(predicted) != len(labels):
            raise InputError(f"X has {len(predicted)} images and y {len(labels)} labels; there must be one for each")
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        truth = np.array(labels[known].tolist())
        if (truth.dtype.kind == "U") != (predicted.dtype.kind == "U"):
            kinds = ("texts", "numbers") if predicted.dtype.kind == "U" else ("numbers", "texts")
            raise InputError(f"the classes are {kinds[0]} ({predicted[0]!r}) and y has {kinds[1]} ({truth[0]!r})")
        return float(accuracy_score(truth, predicted[known], sample_weight=weight))

    def _probabilities(self, images: np.ndarray) -> np.ndarray:
        with _parameter_names():
            device = ExecutionSettings(device=self.device).torch_device()
        with _on_threads(self.threads):
            model = self.model_.to(device)
            pieces = [output.logits.double().softmax(1).cpu().numpy() for output in outputs(model, images, device)]
        self.model_.cpu()
        return np.concatenate(pieces)

    # --- saving -----------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write model, classes and parameters into one safetensors file, without pickle; not `transduction_`."""
        check_is_fitted(self, "model_")
        parameters = {name: _plain(value) for name, value in self.get_params().items()}
        if self.hyperparameters is not None:
            parameters["hyperparameters"] = {name: _plain(value) for name, value in self.hyperparameters.items()}
        if not isinstance(parameters["random_state"], (int, type(None))):
            parameters["random_state"] = None  # a generator has moved on
        height, width, channels = self.image_shape_
        about = {"parameters": parameters, "classes": self.classes_.tolist(), "white": self._white}
        names = tuple(str(name) for name in self.classes_)
        try:
            save_model(Path(path), self.model_, ModelCard(self._network, names, channels, height, width, about))
        except OSError as error:
            raise RunError(f"{path} cannot be written ({error.strerror})") from error

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """What `save` wrote, or the model.safetensors of a run, whose classes are texts."""
        model, card = load_model(Path(path), torch.device("cpu"))
        about = card.estimator or {"parameters": {"network": card.network}, "classes": card.classes, "white": 255.0}
        try:
            self = cls(**about["parameters"])
            self.classes_, self._white = np.array(about["classes"]), float(about["white"])
            if self.classes_.shape != (len(card.classes),):
                raise ValueError(f"it has {len(card.classes)} classes and names {len(self.classes_)}")
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{path}: not an estimator of this version ({error})") from error
        self.model_, self._network = model, card.network
        self.image_shape_ = (card.height, card.width, card.channels)
        self.n_features_in_ = card.height * card.width * card.channels
        return self

    def __sklearn_tags__(self) -> Any:
        """Images are no tables; labels are needed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags


def _plain(value: Any) -> Any:
    """A NumPy scalar, as a grid of parameters has them, as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _held_out(labels: np.ndarray, known: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Labeled rows for validation, drawn by the seed; every class keeps at least one row to learn from."""
    if not 0 <= fraction < 1:
        raise ConfigError(f"validation_fraction is {fraction}; it must be in [0, 1)")
    count = round(fraction * len(known))
    rows = numpy_generator(seed, Purpose.SPLIT).permutation(known)
    _, first = np.unique(labels[rows], return_index=True)
    free = np.delete(rows, first)
    if count > len(free):
        raise InputError(
            f"validation_fraction {fraction} of {len(known)} labels leaves some class without a label; lower it"
        )
    return np.sort(free[:count])


@contextmanager
def _parameter_names() -> Iterator[None]:
    """What a setting's error says of flags, it says of parameters."""
    try:
        yield
    except ConfigError as error:
        words = re.sub(r"--[a-z][a-z-]*", lambda flag: flag[0][2:].replace("-", "_"), str(error))
        raise ConfigError(words) from error


@contextmanager
def _on_threads(threads: int | None) -> Iterator[None]:
    """Compute on so many CPU threads, and always by the same kernels; afterwards all is as it was."""
    before = torch.get_num_threads(), torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    try:
        torch.set_num_threads(threads or before[0])
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before[1:]


def _headline(split: Split, config: Config) -> str:
    settings = config.training
    return (
        f"{len(split.classes)} classes; {len(split.labeled_rows):,} labeled, {len(split.unlabeled_rows):,} unlabeled, "
        f"{len(split.validation_rows):,} validation; {config.method} with {config.network.network}, "
        f"{settings.last_step:,} steps of {settings.batch_size} labeled images"
    )
