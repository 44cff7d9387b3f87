"""`RankingMatchClassifier`: the training loop behind scikit-learn's interface."""

import copy
import warnings
from collections.abc import Iterable, Mapping
from numbers import Real
from pathlib import Path
from types import NoneType
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from rankingmatch.core.atomic import write_output
from rankingmatch.core.devices import find_device, on_threads
from rankingmatch.core.errors import ConfigError, InputError, RunError
from rankingmatch.core.randomness import Purpose, numpy_generator
from rankingmatch.data import UNLABELED, Dataset, Images, Split, assemble_split, suggested_settings
from rankingmatch.data.arrays import as_uint8, encode_labels, image_array, label_array, missing_labels, white_of
from rankingmatch.networks import predict_probabilities
from rankingmatch.networks.onnx import accelerated
from rankingmatch.runs.config import (
    DEFAULT_METHOD,
    Config,
    assemble,
    checked_settings,
    known_values,
    require_exclusive,
    setting_options,
    with_presets,
)
from rankingmatch.runs.display import LogLines, headline
from rankingmatch.runs.job import ready_state
from rankingmatch.runs.model import ModelInfo, load_model, save_model
from rankingmatch.runs.photographs import fine_tuning, is_fine_tuned
from rankingmatch.runs.result import record_to_json
from rankingmatch.training.loop import train

__all__ = ["RankingMatchClassifier"]

DARK = 64  # a warning is issued if no pixel is brighter
# Parameters that are not declared as options, which are checked elsewhere.
NOT_OPTIONS: dict[str, tuple[Any, str]] = {
    "method": (str, "the name of a method"),
    "hyperparameters": ((Mapping, NoneType), "a dict"),
    "validation_fraction": (Real, "a number"),
}


class RankingMatchClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """An image classifier that learns from a few labeled and many unlabeled images.

    Parameters
    ----------
    method : str, default="rankingmatch-bm"
        The name of a method (``rankingmatch methods`` lists them), or ``package.module:Class``.
    network : str, optional
        The name of a network; by default one that suits the images.
    steps, batch_size, mu, learning_rate : optional
        Length of training, labeled images per step, unlabeled images per labeled image, and initial learning rate; by
        default they follow from the size and number of the images.
    hyperparameters : dict, optional
        Any other option of ``rankingmatch train``, such as ``{"threshold": 0.9}``.
    validation_fraction : float, default=0.0
        The share of the labeled rows held out for validation; the weights with the lowest validation error are then
        kept, instead of the last ones.
    device : str, default="auto"
        Where to compute: "cpu", "cuda"…; by default the accelerator if there is one.
    threads : int, optional
        Number of CPU threads. By default, PyTorch's choice.
    random_state : int, RandomState instance or None
        Determines the initial weights, batches and views.
    verbose : int, default=0
        Whether to print the progress.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    transduction_ : ndarray of shape (n_samples,)
        A label for every training row: the given one, otherwise the predicted one.
    model_ : Classifier
        The trained model.
    image_shape_ : tuple
        Height, width and channels of the images.
    n_features_in_ : int
        The number of values in an image.
    n_iter_ : int
        The number of training steps.
    history_ : list of dict
        Metrics of each evaluation.
    validation_score_ : float
        The accuracy on the validation rows, if there are any.

    Examples
    --------
    >>> clf = RankingMatchClassifier(random_state=0).fit(images, labels)  # doctest: +SKIP
    >>> clf.predict(new_images)  # doctest: +SKIP
    """

    def __init__(
        self,
        method: str = DEFAULT_METHOD,
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
        """Train on images, some of which have labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, height, width) or (n_samples, height, width, channels)
            Images: integers in 0…255, or floats in 0…1 or 0…255.
        y : array-like of shape (n_samples,)
            Labels; -1 for unlabeled rows or, among strings, None, "" or NaN. If every row has a label, the images
            also serve as unlabeled ones.

        Returns
        -------
        self
            The fitted estimator.
        """
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
                f"the brightest pixel of X is {brightest} of 255; if the images have another scale, multiply them so "
                "that white is 255, or divide by the largest value",
                stacklevel=2,
            )
        config = self._config(images.shape)
        known = np.flatnonzero(labels != UNLABELED)
        held_out = _held_out(labels, known, self.validation_fraction, config.training.seed)
        dataset = Dataset(tuple(str(name) for name in classes), Images(images, labels))
        everything, balanced = len(known) == len(labels), config.data.balanced
        labeled = np.setdiff1d(known, held_out)
        split = assemble_split(dataset, labeled, held_out, include_labeled=everything, balanced=balanced)
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
        """The settings: given ones override the method's presets, which override those suggested by the images."""
        for name, (kind, words) in NOT_OPTIONS.items():
            if not isinstance(value := getattr(self, name), kind):
                raise ConfigError(f"{name} is {value!r}; it must be {words}")
        own = [name for name in self.get_params() if name in setting_options()]
        given = {name: plain for name in own if (plain := _plain(getattr(self, name))) is not None}
        others = {name: _plain(value) for name, value in (self.hyperparameters or {}).items()}
        _check_hyperparameters(others, own)
        count, height, width, channels = shape
        side, every = min(height, width), {**given, **others}
        require_exclusive(every, "epochs", "steps")
        suggested = suggested_settings(height, width, channels, count)
        if is_fine_tuned(self.network or "", side, every):
            suggested |= known_values(fine_tuning(side, {**every, "method": self.method}), self.method)
        values = with_presets("arrays", self.method, suggested, every)
        seed = self.random_state
        if not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31 - 1)
        return assemble("arrays", self.method, {**values, "seed": int(seed)})

    def _train(self, split: Split, config: Config) -> None:
        """Run the training loop, and keep the last weights or the best ones."""
        lines, history, best = LogLines(), [], None
        with on_threads(config.execution.threads):
            state = ready_state(config, split)
            if self.verbose:
                lines.print(headline(config, split, state))
            for record in train(state, split, config.training):
                if self.verbose:
                    lines.update(record)
                if record.evaluation:
                    history.append(record_to_json(record))
                    if record.evaluation.best:
                        best = copy.deepcopy(state.ema)
        self.model_ = (best or state.ema).cpu()
        self.history_, self.n_iter_, self._network = history, state.step, config.network.network
        self.__dict__.pop("validation_score_", None)  # of an earlier fit
        if state.best_error is not None:
            self.validation_score_ = 1 - state.best_error / 100

    # --- predicting -------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, height, width) or (n_samples, height, width, channels)
            Images of the same size and scale as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities in the order of `classes_`.
        """
        check_is_fitted(self, "model_")
        images = image_array(X)
        if images.shape[1:] != self.image_shape_:
            have, want = ("×".join(map(str, shape)) for shape in (images.shape[1:], self.image_shape_))
            raise InputError(f"X has {have} images, but {type(self).__name__} was fitted on {want}; resize them")
        return self._probabilities(as_uint8(images, self._white))

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Predict the label of each image.

        Parameters
        ----------
        X : array-like of shape (n_samples, height, width) or (n_samples, height, width, channels)
            Images of the same size and scale as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
            The most probable labels.
        """
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(1)]  # type: ignore[no-any-return]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """The accuracy on the rows that have a label; unlabeled rows are ignored.

        Parameters
        ----------
        X : array-like of shape (n_samples, height, width) or (n_samples, height, width, channels)
            Images of the same size and scale as in `fit`.
        y : array-like of shape (n_samples,)
            True labels; unlabeled rows are marked as in `fit`.
        sample_weight : array-like of shape (n_samples,), optional
            Sample weights.

        Returns
        -------
        float
            The accuracy.
        """
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
            kinds = ("strings", "numbers") if predicted.dtype.kind == "U" else ("numbers", "strings")
            raise InputError(f"the classes are {kinds[0]} ({predicted[0]!r}), but y contains {kinds[1]} ({truth[0]!r})")
        return float(accuracy_score(truth, predicted[known], sample_weight=weight))

    def _probabilities(self, images: np.ndarray) -> np.ndarray:
        device = find_device(self.device)
        with on_threads(self.threads):
            model = accelerated(self.model_.to(device), len(images))
            probabilities = predict_probabilities(model, images, device, dtype=torch.float64)
        self.model_.cpu()
        return probabilities

    # --- saving -----------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Save the model, classes and parameters to a safetensors file, without pickle.

        Parameters
        ----------
        path : str or Path
            The file to write. `transduction_` and `history_` are not saved.
        """
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
            info = ModelInfo(self._network, names, channels, height, width, about)
            save_model(Path(path), self.model_, info, write_output)
        except OSError as error:
            raise RunError(f"{path} cannot be written ({error.strerror})") from error

    @classmethod
    def load(cls, path: str | Path, *, trust: bool = False) -> Self:
        """Load a saved estimator, or the model.safetensors of a run, whose classes are strings.

        Parameters
        ----------
        path : str or Path
            The file to read.
        trust : bool, default=False
            Whether to import a network that the file names by its import path, which runs its code.

        Returns
        -------
        RankingMatchClassifier
            The fitted estimator.
        """
        model, info = load_model(Path(path), torch.device("cpu"), trust=trust)
        about = info.estimator or {"parameters": {"network": info.network}, "classes": info.classes, "white": 255.0}
        try:
            self = cls(**about["parameters"])
            self.classes_, self._white = np.array(about["classes"]), float(about["white"])
            if self.classes_.shape != (len(info.classes),):
                raise ValueError(f"it has {len(info.classes)} classes but {len(self.classes_)} names")
            if self.classes_.dtype.kind not in "biufU" or self._white not in (1.0, 255.0):
                raise ValueError("its classes are neither numbers nor strings, or its scale is neither 1 nor 255")
            given = {name: value for name, value in self.get_params().items() if value is not None}
            checked_settings({name: value for name, value in given.items() if name != "network"})
        except (ConfigError, KeyError, TypeError, ValueError) as error:
            raise RunError(f"{path}: not an estimator of this version ({error})") from error
        self.model_, self._network = model, info.network
        self.image_shape_ = (info.height, info.width, info.channels)
        self.n_features_in_ = info.height * info.width * info.channels
        return self

    def __sklearn_tags__(self) -> Any:
        """X is a batch of images rather than a table, and y is required."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags


def _plain(value: Any) -> Any:
    """A NumPy scalar, as parameter grids contain them, as a Python number."""
    return value.item() if isinstance(value, np.generic) else value


def _check_hyperparameters(names: Iterable[str], parameters: list[str]) -> None:
    """Raise ConfigError for an option that belongs elsewhere."""
    known = setting_options()
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(f"hyperparameters contains {name!r}; its keys must be names of options")
        kind = known[name].kind if name in known else "learning"
        if name in parameters:
            raise ConfigError(f"hyperparameters contains '{name}', which is a parameter of the estimator; set that")
        if name == "seed":
            raise ConfigError("hyperparameters contains 'seed'; use the parameter random_state instead")
        if kind in ("source", "labels"):
            raise ConfigError(f"hyperparameters contains '{name}', which X and y determine; remove it")
        if kind == "run":
            raise ConfigError(f"hyperparameters contains '{name}', which needs a run directory; use rankingmatch.train")


def _held_out(labels: np.ndarray, known: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Labeled rows for validation, drawn at random; every class keeps at least one row for training."""
    if not 0 <= fraction < 1:
        raise ConfigError(f"validation_fraction is {fraction}; it must be in [0, 1)")
    count = round(fraction * len(known))
    rows = numpy_generator(seed, Purpose.SPLIT).permutation(known)
    _, first = np.unique(labels[rows], return_index=True)
    free = np.delete(rows, first)
    if count > len(free):
        raise InputError(
            f"validation_fraction {fraction} of {len(known)} labels leaves a class without any label; lower it"
        )
    return np.sort(free[:count])
