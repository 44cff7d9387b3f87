"""Methods by name. To add one: one file, one line in this table, one row in docs/methods.md."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rankingmatch.core.errors import ConfigError, unknown_name
from rankingmatch.core.options import Option, import_object, options_of, validate
from rankingmatch.methods.fixmatch import FixMatch
from rankingmatch.methods.flexmatch import FlexMatch
from rankingmatch.methods.freematch import FreeMatch
from rankingmatch.methods.mean_teacher import MeanTeacher
from rankingmatch.methods.mixmatch import MixMatch
from rankingmatch.methods.pi_model import PiModel
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task
from rankingmatch.methods.pseudo_label import PseudoLabel
from rankingmatch.methods.rankingmatch import RankingMatch
from rankingmatch.methods.realmix import RealMix
from rankingmatch.methods.remixmatch import ReMixMatch
from rankingmatch.methods.softmatch import SoftMatch
from rankingmatch.methods.supervised import Supervised
from rankingmatch.methods.uda import UDA
from rankingmatch.methods.vat import VirtualAdversarialTraining

__all__ = [
    "METHODS",
    "Batch",
    "Context",
    "Entry",
    "Losses",
    "Method",
    "PseudoLabels",
    "Task",
    "entry",
    "hyperparameters_of",
    "make_method",
]


@dataclass(frozen=True)
class Entry:
    """A method with its row in the paper's comparison of methods (Table 6)."""

    method: type[Method]
    augmentation: str = ""
    post_processing: str = ""
    ranking_loss: str = "none"
    note: str = ""
    reference: str = ""
    variant: str = ""  # the value of `ranking`, where one class serves several names
    preset: Mapping[str, Any] = field(default_factory=dict)  # settings of other rooms that the method wants otherwise


def _ranking(variant: str, loss: str, note: str = "") -> Entry:
    return Entry(RankingMatch, "weak, strong", "threshold", loss, note, "Tran 2021", variant)


# These methods' papers take as many unlabeled images as labeled ones.
_EVEN = {"mu": 1}

METHODS: dict[str, Entry] = {
    "supervised": Entry(Supervised, "weak", note="the floor"),
    "pseudo-label": Entry(PseudoLabel, "weak", "threshold", note="one view", reference="Lee 2013", preset=_EVEN),
    "pi-model": Entry(PiModel, "weak", note="squared L2 between two views", reference="Laine 2017", preset=_EVEN),
    "mean-teacher": Entry(
        MeanTeacher, "weak", note="squared L2 to the EMA model", reference="Tarvainen 2017", preset=_EVEN
    ),
    "vat": Entry(
        VirtualAdversarialTraining,
        "weak, adversarial",
        note="entropy minimisation",
        reference="Miyato 2018",
        preset=_EVEN,
    ),
    "uda": Entry(
        UDA, "weak, strong", "sharpening, threshold", note="optional signal annealing (TSA)", reference="Xie 2020"
    ),
    "mixmatch": Entry(
        MixMatch,
        "weak",
        "sharpening",
        note="squared L2 for unlabeled data",
        reference="Berthelot 2019",
        preset=_EVEN,
    ),
    "realmix": Entry(
        RealMix,
        "weak, strong",
        "sharpening, threshold",
        note="training signal annealing (TSA)",
        reference="Nair 2019",
        preset=_EVEN,
    ),
    "remixmatch": Entry(
        ReMixMatch,
        "weak, strong",
        "sharpening",
        note="rotation loss",
        reference="Berthelot 2020",
        preset={**_EVEN, "strong": "ctaugment"},
    ),
    "fixmatch-ra": Entry(FixMatch, "weak, strong", "threshold", note="RandAugment", reference="Sohn 2020"),
    "fixmatch-cta": Entry(
        FixMatch,
        "weak, strong",
        "threshold",
        note="CTAugment",
        reference="Sohn 2020",
        preset={"strong": "ctaugment"},
    ),
    "flexmatch": Entry(FlexMatch, "weak, strong", "threshold per class", note="learned counts", reference="Zhang 2021"),
    "freematch": Entry(
        FreeMatch, "weak, strong", "adaptive threshold per class", note="fairness loss", reference="Wang 2023"
    ),
    "softmatch": Entry(SoftMatch, "weak, strong", "weight, alignment", note="no threshold", reference="Chen 2023"),
    "rankingmatch-bm": _ranking("bm", "BatchMean triplet"),
    "rankingmatch-ct": _ranking("ct", "contrastive"),
    "rankingmatch-bh": _ranking("bh", "BatchHard triplet"),
    "rankingmatch-ba": _ranking("ba", "BatchAll triplet"),
    "rankingmatch-bm+ct": _ranking("bm+ct", "BatchMean + contrastive", "future work there"),
}


def entry(name: str) -> Entry:
    """The method called `name`, or found at the import path `package.module:Class`."""
    if ":" in name:
        return Entry(_imported(name))
    if name not in METHODS:
        raise unknown_name("method", name, METHODS, " (or package.module:Class)")
    return METHODS[name]


def _imported(path: str) -> type[Method]:
    found = import_object("method", path)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ConfigError(f"method '{path}' is not a subclass of rankingmatch.methods.Method")
    if "__dataclass_fields__" not in vars(found) or found.__hash__ is None:
        raise ConfigError(f"method '{path}' must be decorated with @dataclass(eq=False)")
    return found


def hyperparameters_of(name: str) -> list[Option]:
    """The options of the method called `name`."""
    chosen = entry(name)
    variants = set(chosen.variant.split("+"))
    return [
        option for option in options_of(chosen.method) if not option.used_by or variants.intersection(option.used_by)
    ]


def make_method(name: str, hyperparameters: Mapping[str, Any]) -> Method:
    """The method called `name` with these hyper-parameters, checked; the others have their defaults."""
    chosen = entry(name)
    known = {option.name: option for option in hyperparameters_of(name)}
    for given in hyperparameters:
        if given not in known:
            flag = "--" + given.replace("_", "-")
            flags = ", ".join(option.flag for option in known.values()) or "none"
            raise ConfigError(f"{flag} is not used by the method '{name}'; its hyper-parameters: {flags}")
    variant = {"ranking": chosen.variant} if chosen.variant else {}
    method = chosen.method(**variant, **hyperparameters)
    validate(method)
    return method
