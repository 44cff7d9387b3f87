"""Everything needed to repeat a run, gathered from the rooms that declare it."""

import dataclasses
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rankingmatch.augment import ViewSettings
from rankingmatch.networks import input_side
from rankingmatch.data import Benchmark, DataSettings, is_benchmark, source, whole_paths
from rankingmatch.core.distributed import own_device
from rankingmatch.core.errors import ConfigError, DataError, unknown_name
from rankingmatch.methods import METHODS, find_method, hyperparameters_of, make_method
from rankingmatch.networks import NetworkSettings
from rankingmatch.core.options import check, option, options_of, validate
from rankingmatch.training.state import TrainSettings


@dataclass(frozen=True)
class ExecutionSettings:
    """Where and how a run is carried out: it does not change what is learned, but for the last bits of a number."""

    data_dir: str | None = option(
        None, "Where the dataset's files are, or are downloaded to; else $RANKINGMATCH_DATA or the user's cache."
    )
    device: str = option("auto", "cpu, cuda, cuda:1, mps …; by default the accelerator if there is one.")
    threads: int | None = option(None, "CPU threads; by default torch's choice.", interval="[1, 4096]")
    checkpoint_seconds: float = option(60.0, "Seconds between checkpoints.", interval="[0, inf)")
    checkpoint_steps: int | None = option(
        None, "Steps between checkpoints, besides --checkpoint-seconds.", interval="[1, inf)"
    )
    compile: bool = option(False, "Let torch.compile translate the network; needs a C++ compiler, or a GPU.")
    measure_steps: bool = option(False, "Write the seconds and the peak memory of every step into steps.csv.")
    licence: str | None = option(None, "Under which licence the model may be used, for its card, such as CC-BY-4.0.")
    tensorboard: bool = option(False, "Also write what is logged for TensorBoard, into RUN/tensorboard.")

    def data_path(self) -> Path | None:
        """The directory of the dataset's files, if it is said."""
        return None if self.data_dir is None else Path(self.data_dir)

    def torch_device(self) -> torch.device:
        """The device to compute on."""
        if self.device == "auto":
            return own_device(torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu"))
        try:
            device = torch.device(self.device)
            torch.ones(1, device=device).item()
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            raise ConfigError(f"--device {self.device} cannot be used here: {str(error).splitlines()[0]}") from error
        return own_device(device)


SECTIONS: dict[str, type] = {
    "data": DataSettings,
    "views": ViewSettings,
    "network": NetworkSettings,
    "training": TrainSettings,
    "execution": ExecutionSettings,
}


@dataclass(frozen=True)
class Config:
    """A run: the dataset, the method, and the settings of each room."""

    dataset: str
    method: str
    hyperparameters: dict[str, Any]
    data: DataSettings
    views: ViewSettings
    network: NetworkSettings
    training: TrainSettings
    execution: ExecutionSettings

    @property
    def source(self) -> Benchmark:
        """The dataset or folder."""
        return source(self.dataset, self.data.unlabeled, self.data.labels_csv, self.data.image_size)

    def to_json(self) -> dict[str, Any]:
        """Plain values, nested by room."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Config":
        """The inverse of `to_json`; ConfigError if something is missing, unknown or not allowed."""
        try:
            sections = {name: settings(**values[name]) for name, settings in SECTIONS.items()}
            names = {name: values[name] for name in ("dataset", "method")}
            if not all(isinstance(name, str) for name in names.values()):
                raise TypeError("dataset and method are names")
            # An option that is younger than the file has its default, as in the sections.
            hyperparameters = {**_defaults(names["method"]), **values["hyperparameters"]}
            config = cls(**names, hyperparameters=hyperparameters, **sections)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"it is no configuration of this version: {error}") from error
        config.check()
        return config

    def learns_as(self, other: "Config") -> bool:
        """Whether two configurations learn the same; where and how they are carried out may differ."""
        return dataclasses.replace(self, execution=other.execution) == other

    def check(self) -> None:
        """Raise ConfigError for the first value that is not allowed."""
        for name in SECTIONS:
            validate(getattr(self, name))
        make_method(self.method, self.hyperparameters)


def resolve(dataset: str, method: str, given: Mapping[str, Any]) -> Config:
    """The configuration for these names and options: what is given, then what the method and the dataset want otherwise
    than the defaults, then these.

    `given` has option names of any room and hyper-parameters of the method, all on one level.
    """
    if given.get("epochs") is not None and given.get("steps") is not None:
        raise ConfigError("--epochs and --steps say the same thing twice; give one of them")
    check_rooms(given)
    dataset, given = whole_paths(dataset, given)
    given = _sized_for_network(dataset, given)
    values = {**_preset(dataset, given), **find_method(method).preset, **given}
    if given.get("epochs") is not None:
        values["steps"] = None
    return assemble(dataset, method, values)


def assemble(dataset: str, method: str, values: Mapping[str, Any]) -> Config:
    """The configuration with these values, each for the room or the method that declares it, all checked."""
    values = dict(values)
    sections = {}
    for name, settings in SECTIONS.items():
        names = [option.name for option in options_of(settings)]
        sections[name] = settings(**{key: values.pop(key) for key in names if key in values})
        validate(sections[name])
    defaults = _defaults(method)
    clashes = sorted(set(defaults) & room_option_names())
    if clashes:
        raise ConfigError(
            f"the method '{method}' has a hyper-parameter '{clashes[0]}', which is a setting already; rename it"
        )
    for name in values:
        if name not in defaults and name not in all_option_names():
            raise unknown_name("setting", name, all_option_names())
    make_method(method, values)
    return Config(dataset, method, {**defaults, **values}, **sections)


def _defaults(method: str) -> dict[str, Any]:
    return {option.name: option.default for option in hyperparameters_of(method)}


def repeat_command(config: Config) -> str:
    """What to type to learn the same again: the names, and every option that is not as it is by default."""
    places = {name: getattr(config.data, name) for name in ("unlabeled", "labels_csv", "image_size")}
    said = {name: value for name, value in places.items() if value is not None}
    try:
        usual = resolve(config.dataset, config.method, said)
    except (ConfigError, DataError):  # the folder is gone, or has changed: what would follow from it is not known
        usual = assemble(config.dataset, config.method, find_method(config.method).preset)
    given: dict[str, Any] = {**said, "seed": config.training.seed}
    if (config.data.labels, usual.data.labels) != (None, None):  # without, those that a dataset comes with: its folds
        given["labels"] = config.data.labels or 0
    for name in SECTIONS:
        if name != "execution":
            mine, theirs = dataclasses.asdict(getattr(config, name)), dataclasses.asdict(getattr(usual, name))
            given |= {key: value for key, value in mine.items() if value != theirs[key] and value is not None}
    defaults = usual.hyperparameters
    given |= {key: value for key, value in config.hyperparameters.items() if value != defaults.get(key)}
    if config.data.split is not None:  # which says all about them
        given = {key: value for key, value in given.items() if key not in ("labels", "validation")}
    words = ["rankingmatch", "train", config.dataset, "--method", config.method]
    for key, value in given.items():
        flag = "--" + key.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        else:
            words += [flag, str(value)]
    return shlex.join(words)


def source_of(dataset: str, given: Mapping[str, Any]) -> Benchmark:
    """The dataset or folder of a name, with what the settings say of it."""
    return source(dataset, given.get("unlabeled"), given.get("labels_csv"), given.get("image_size"))


def _sized_for_network(dataset: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the side that a given network was made for, if the files of a folder may be read at any."""
    if given.get("image_size") is not None or "network" not in given or is_benchmark(dataset):
        return dict(given)
    side = input_side(given["network"])
    return dict(given) if side is None else {**given, "image_size": side}


def _preset(dataset: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """A dataset's settings; the lengths in pixels follow the size of the images."""
    chosen = source_of(dataset, given)
    image_size = given.get("image_size")
    preset = dict(chosen.preset)
    if image_size is not None:
        defaults = {option.name: option.default for option in options_of(ViewSettings)}
        for name in ("padding", "cutout"):
            preset[name] = round(preset.get(name, defaults[name]) * image_size / chosen.shape[0])
    return preset


def check_rooms(given: Mapping[str, Any]) -> None:
    """Raise ConfigError for the first setting of a room that is not allowed: before a folder is read by it."""
    for settings in SECTIONS.values():
        for one in options_of(settings):
            if one.name in given:
                check(one, given[one.name])


def room_option_names() -> set[str]:
    """Every option that is not a method's."""
    return {option.name for settings in SECTIONS.values() for option in options_of(settings)}


def all_option_names() -> set[str]:
    """Every option of every room and of every method in the table."""
    return room_option_names() | {option.name for name in METHODS for option in hyperparameters_of(name)}
