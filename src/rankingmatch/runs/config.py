"""The configuration of a run: everything needed to repeat it, collected from the modules that declare it."""

import dataclasses
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from rankingmatch.augment import ViewSettings
from rankingmatch.core.devices import computes_bfloat16, find_device
from rankingmatch.core.errors import ConfigError, RankingMatchError, setting, unknown_name
from rankingmatch.core.imports import is_import_path
from rankingmatch.core.options import Kind, Option, absolute_path, check, flag, option, options_of, validate
from rankingmatch.core.untrusted import FORMATS
from rankingmatch.data import DataSettings, Source, find_source
from rankingmatch.methods import find_method, hyperparameters_of, make_method
from rankingmatch.networks import NetworkSettings, input_side
from rankingmatch.runs.photographs import FINE_TUNING_METHOD, fine_tuning_settings
from rankingmatch.training.settings import TrainSettings


@dataclass(frozen=True)
class ExecutionSettings:
    """Where and how a run is computed, and what it writes: this changes no result except for rounding."""

    data_dir: str | None = option(
        None,
        "Directory of the dataset's files; missing ones are downloaded. By default, "
        "$RANKINGMATCH_DATA or the user's cache directory.",
        kind="run",
        path=True,
    )
    device: str = option(
        "auto", "Device: cpu, cuda, cuda:1, mps… auto is the accelerator if there is one.", kind="execution"
    )
    threads: int | None = option(
        None, "Number of CPU threads. By default, PyTorch's choice.", interval="[1, 4096]", kind="execution"
    )
    checkpoint_seconds: float = option(60.0, "Seconds between checkpoints.", interval="[0, inf)", kind="run")
    checkpoint_steps: int | None = option(
        None, "Steps between checkpoints, in addition to {checkpoint_seconds}.", interval="[1, inf)", kind="run"
    )
    compile: bool = option(False, "Compile the network with torch.compile; needs a C++ compiler or a GPU.", kind="run")
    measure_steps: bool = option(
        False, "Record the seconds and the peak memory of each step in RUN/steps.csv.", kind="run"
    )
    license: str | None = option(None, "License of the model for its model card, such as CC-BY-4.0.", kind="run")
    tensorboard: bool = option(False, "Also write TensorBoard event files to RUN/tensorboard.", kind="run")


SECTIONS: dict[str, type] = {
    "data": DataSettings,
    "views": ViewSettings,
    "network": NetworkSettings,
    "training": TrainSettings,
    "execution": ExecutionSettings,
}
DEFAULT_METHOD = "rankingmatch-bm"
# Hyperparameters of earlier versions, with the value that changed nothing.
REMOVED = {"skip_unsure": False, "weak_pass": "joint"}


@dataclass(frozen=True)
class Config:
    """The dataset, the method, and the settings of each section."""

    dataset: str
    method: str
    hyperparameters: dict[str, Any]
    data: DataSettings
    views: ViewSettings
    network: NetworkSettings
    training: TrainSettings
    execution: ExecutionSettings

    def to_json(self) -> dict[str, Any]:
        """Plain values, nested by section, with the format number."""
        return {"format": FORMATS["config"], **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Config":
        """The inverse of `to_json`; raises ConfigError if something is missing, unknown or not allowed."""
        try:
            sections = {name: settings(**values[name]) for name, settings in SECTIONS.items()}
            names = {name: values[name] for name in ("dataset", "method")}
            if not all(isinstance(name, str) for name in names.values()):
                raise TypeError("dataset and method must be names")
            saved = {
                name: value for name, value in values["hyperparameters"].items() if (name, value) not in REMOVED.items()
            }
            # An option that is newer than the file has its default, as in the sections.
            hyperparameters = {**_defaults(names["method"]), **saved}
            config = cls(**names, hyperparameters=hyperparameters, **sections)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"not a configuration of this version: {error}") from error
        return config.checked()

    def settings(self) -> dict[str, Any]:
        """Every setting and hyperparameter by name, on one level."""
        sections = (dataclasses.asdict(getattr(self, name)) for name in SECTIONS)
        return {**{name: value for section in sections for name, value in section.items()}, **self.hyperparameters}

    def changes(self) -> dict[str, dict[str, Any]]:
        """The settings and hyperparameters that differ from their defaults, by section."""
        defaults = {name: {option.name: option.default for option in options_of(SECTIONS[name])} for name in SECTIONS}
        defaults["hyperparameters"] = _defaults(self.method)
        return {
            section: {name: value for name, value in values.items() if value != defaults[section][name]}
            for section, values in dataclasses.asdict(self).items()
            if section in defaults
        }

    def import_paths(self) -> list[str]:
        """The method and the network, where they are named by an import path."""
        return [name for name in (self.method, self.network.network) if is_import_path(name)]

    def learns_like(self, other: "Config") -> bool:
        """Whether two configurations give the same result; where and how they are computed may differ."""
        return replace(self, execution=other.execution) == other

    def device(self, override: str | None = None) -> torch.device:
        """The device to compute on: the given one, or the one of the settings."""
        return find_device(override or self.execution.device)

    def checked(self) -> "Config":
        """This configuration; ConfigError for the first value that is not allowed.

        The precision "auto" is decided once, so that a run is resumed with the one it began with.
        """
        for name in SECTIONS:
            validate(getattr(self, name))
        make_method(self.method, self.hyperparameters)
        if self.training.precision != "auto":
            return self
        precision: Literal["bfloat16", "float32"] = "bfloat16" if computes_bfloat16(self.device()) else "float32"
        return replace(self, training=replace(self.training, precision=precision))


@dataclass(frozen=True)
class Plan:
    """A configuration and where its images come from, found once and handed on."""

    config: Config
    source: Source
    preset: Mapping[str, Any] = field(default_factory=dict)  # the settings that follow from the images
    downloads: bool = True  # whether a dataset may be downloaded


def plan_of(config: Config, *, data_dir_given: bool = False) -> Plan:
    """The plan for the configuration of an existing run.

    A dataset is not downloaded to a directory that only the run's file has: someone else may have written it.
    """
    downloads = data_dir_given or config.execution.data_dir is None
    return Plan(config, find_source(config.dataset, **_places(config.settings())), downloads=downloads)


def resolve(dataset: str, method: str | None, given: Mapping[str, Any], source: Source | None = None) -> Plan:
    """The plan for a dataset or folder, a method (by default one that suits the images), and options.

    The options are those of any section and hyperparameters of the method, all on one level. They override the presets
    of the method, which override those of the dataset, which override the defaults. `source` is the dataset or folder,
    if it has been found already.
    """
    require_exclusive(given, "epochs", "steps")
    given = checked_settings(given)
    source = source or find_source(dataset, **_places(given))
    if source.is_folder and "network" in given and given.get("image_size") is None:
        side = input_side(given["network"])  # the images of a folder can have the size that it was made for
        given |= {} if side is None else {"image_size": side}
    own = find_method(method).preset if method else {}  # a method may have a network of its own
    fine_tuning = fine_tuning_settings(source, {**own, **given, "method": method})
    method = method or (DEFAULT_METHOD if fine_tuning is None else FINE_TUNING_METHOD)
    preset = source.preset(given.get("image_size")) if fine_tuning is None else known_values(fine_tuning, method)
    values = with_presets(source.name, method, preset, given)
    return Plan(assemble(source.name, method, values), source, preset)


def with_presets(dataset: str, method: str, of_images: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are not defaults: of the images, of the method, of the method for this dataset, and given.

    Later ones override earlier ones. All are on one level, with the hyperparameters.
    """
    info = find_method(method)
    values = {**of_images, **info.preset, **info.dataset_presets.get(dataset, {}), **given}
    if given.get("epochs") is not None:
        values["steps"] = None
    return values


def assemble(dataset: str, method: str, values: Mapping[str, Any]) -> Config:
    """The configuration with these values, each for the section or method that declares it, all checked."""
    values = dict(values)
    sections = {}
    for name, settings in SECTIONS.items():
        names = [option.name for option in options_of(settings)]
        sections[name] = settings(**{key: values.pop(key) for key in names if key in values})
    defaults = _defaults(method)
    if clashes := sorted(set(defaults) & set(setting_options())):
        raise ConfigError(
            f"the method '{method}' has a hyperparameter '{clashes[0]}', which is already a setting; rename it"
        )
    for name in values:
        if name not in defaults and name not in all_option_names():
            raise unknown_name("setting", name, all_option_names())
    return Config(dataset, method, {**defaults, **values}, **sections).checked()


def known_values(values: Mapping[str, Any], method: str) -> dict[str, Any]:
    """The values without hyperparameters that a method does not have."""
    names = {*setting_options(), *_defaults(method)}
    return {name: value for name, value in values.items() if name in names}


def require_exclusive(given: Mapping[str, Any], *names: str) -> None:
    """Raise ConfigError if more than one of these options is given."""
    found = [setting(name) for name in names if given.get(name) is not None]
    if len(found) > 1:
        raise ConfigError(f"{' and '.join(found)} are mutually exclusive; give one of them")


def checked_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, paths made absolute; ConfigError for the first that is not allowed, before a folder is read."""
    checked, known = dict(given), setting_options()
    for name, value in given.items():
        if name in known:
            check(known[name], value)
            if known[name].path and value is not None:
                checked[name] = str(absolute_path(name, value))
    return checked


def setting_options() -> dict[str, Option]:
    """Every option that is not a method's, by name."""
    return {option.name: option for settings in SECTIONS.values() for option in options_of(settings)}


def options_of_kind(*kinds: Kind) -> list[str]:
    """The names of the settings of these kinds."""
    return [name for name, one in setting_options().items() if one.kind in kinds]


def all_option_names() -> set[str]:
    """Every setting, and every hyperparameter of every method in the table."""
    from rankingmatch.methods import METHODS  # which imports them all

    return {*setting_options(), *(option.name for name in METHODS for option in hyperparameters_of(name))}


def _defaults(method: str) -> dict[str, Any]:
    return {option.name: option.default for option in hyperparameters_of(method)}


def _places(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The paths that say where a folder's images and labels are."""
    return {name: settings.get(name) for name, one in setting_options().items() if one.kind == "source" and one.path}


# --- repeating a run ----------------------------------------------------------------------------------------


def repeat_command(config: Config, source: Source | None = None) -> str:
    """The `rankingmatch train` command with the names and every option that differs from its default."""
    settings = config.settings()
    places = {name: settings[name] for name in options_of_kind("source") if settings[name] not in (None, False)}
    try:
        usual = resolve(config.dataset, config.method, places, source).config.settings()
    except RankingMatchError:  # the folder is gone or has changed, so its presets are not known
        usual = assemble(config.dataset, config.method, find_method(config.method).preset).settings()
    given: dict[str, Any] = {**places, "seed": settings["seed"]}
    # Without a number of labels, a dataset with given folds uses those.
    if (settings["labels"], usual["labels"]) != (None, None):
        given["labels"] = settings["labels"] or 0
    without = options_of_kind("execution", "run")
    given |= {
        name: value
        for name, value in settings.items()
        if name not in without and value != usual.get(name) and value is not None
    }
    # A split determines which images are labeled, unlabeled and for validation.
    determined = ("labels", "validation", "imbalance", "unlabeled_imbalance") if settings["split"] is not None else ()
    words = ["rankingmatch", "train", config.dataset, flag("method"), config.method]
    for name, value in given.items():
        if isinstance(value, bool):
            words.append(flag(name) if value else flag(f"no_{name}"))
        elif name not in determined:
            words += [flag(name), str(value)]
    return shlex.join(words)
