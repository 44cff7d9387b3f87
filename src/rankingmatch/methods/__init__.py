"""Semi-supervised methods by name. To add one: a file with its class, and one line in `METHODS`.

Examples
--------
>>> from rankingmatch.methods import make_method
>>> method = make_method("fixmatch-ra", {"threshold": 0.9})
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rankingmatch.core.errors import ConfigError, setting, unknown_name
from rankingmatch.core.imports import import_object
from rankingmatch.core.options import Option, options_of, validate
from rankingmatch.methods import mixing, passes, rebalancing, targets
from rankingmatch.methods.adamatch import AdaMatch
from rankingmatch.methods.cc_gan import CCGAN
from rankingmatch.methods.comatch import CoMatch
from rankingmatch.methods.crmatch import CRMatch
from rankingmatch.methods.dash import Dash
from rankingmatch.methods.defixmatch import DeFixMatch
from rankingmatch.methods.finessl import FineSSL
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
from rankingmatch.methods.refixmatch import ReFixMatch
from rankingmatch.methods.remixmatch import ReMixMatch
from rankingmatch.methods.sequencematch import SequenceMatch
from rankingmatch.methods.simmatch import SimMatch
from rankingmatch.methods.softmatch import SoftMatch
from rankingmatch.methods.supervised import Supervised
from rankingmatch.methods.swwae import SWWAE
from rankingmatch.methods.uda import UDA
from rankingmatch.methods.vat import VAT

__all__ = [
    "METHODS",
    "Batch",
    "Context",
    "Losses",
    "Method",
    "MethodInfo",
    "PseudoLabels",
    "Task",
    "find_method",
    "hyperparameters_of",
    "make_method",
    "mixing",
    "passes",
    "rebalancing",
    "targets",
]


@dataclass(frozen=True)
class MethodInfo:
    """A method and its row in the paper's comparison of methods (Table 6).

    Attributes
    ----------
    method : type of Method
        The class.
    augmentation : str
        The views it uses.
    post_processing : str
        What it does with predictions before they become targets.
    note : str
        Its distinguishing feature.
    reference : str
        First author and year.
    ranking_loss : str
        The ranking loss, or "none".
    variant : str
        The value of the field `ranking`, if one class implements several methods.
    preset : mapping
        Settings outside the method that have another default with it, such as the number of unlabeled images.
    dataset_presets : mapping
        Settings and hyperparameters that its authors choose for a dataset, by the name of the dataset.
    """

    method: type[Method]
    augmentation: str = ""
    post_processing: str = ""
    note: str = ""
    reference: str = ""
    ranking_loss: str = "none"
    variant: str = ""
    preset: Mapping[str, Any] = field(default_factory=dict)
    dataset_presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def good_for(self) -> str:
        """When to choose it, in a few words; empty for a method of your own."""
        return GOOD_FOR.get(self.method, "")


def _ranking(variant: str, loss: str, note: str = "") -> MethodInfo:
    note = ", ".join(filter(None, [loss, note]))
    return MethodInfo(RankingMatch, "weak, strong", "threshold", note, "Tran 2021", loss, variant)


# The papers of these methods use as many unlabeled images as labeled ones.
_EQUAL = {"mu": 1}
_CTA = {"strong": "ctaugment"}
# Its runs on these datasets are long enough for CTAugment to learn which magnitudes the labeled images can have.
_LABELED_STRONG = {
    name: {"labeled_view": "strong"} for name in ("cifar10", "cifar100", "svhn", "stl10", "tiny-imagenet")
}

METHODS: dict[str, MethodInfo] = {
    "supervised": MethodInfo(Supervised, "weak", note="baseline"),
    "pseudo-label": MethodInfo(PseudoLabel, "weak", "threshold", "one view", "Lee 2013", preset=_EQUAL),
    "pi-model": MethodInfo(PiModel, "weak", "", "squared L2 between two views", "Laine 2017", preset=_EQUAL),
    "mean-teacher": MethodInfo(MeanTeacher, "weak", "", "squared L2 to the EMA model", "Tarvainen 2017", preset=_EQUAL),
    "vat": MethodInfo(
        VAT,
        "weak, adversarial",
        "",
        "entropy minimization",
        "Miyato 2018",
        preset=_EQUAL,
        dataset_presets={"svhn": {"epsilon": 1.0}},
    ),
    "swwae": MethodInfo(
        SWWAE,
        "weak",
        "",
        "reconstruction from pooling switches",
        "Zhao 2015",
        preset=_EQUAL | {"network": "swwae-small"},
        dataset_presets={"stl10": {"network": "swwae"}},
    ),
    "cc-gan": MethodInfo(CCGAN, "weak, inpainted", "", "adversarial inpainting", "Denton 2016", preset=_EQUAL),
    "uda": MethodInfo(UDA, "weak, strong", "sharpening, threshold", "optional signal annealing (TSA)", "Xie 2020"),
    "mixmatch": MethodInfo(
        MixMatch, "weak", "sharpening", "squared L2 for unlabeled data", "Berthelot 2019", preset=_EQUAL
    ),
    "realmix": MethodInfo(
        RealMix, "weak, strong", "sharpening, threshold", "training signal annealing (TSA)", "Nair 2019", preset=_EQUAL
    ),
    "remixmatch": MethodInfo(
        ReMixMatch,
        "weak, strong",
        "sharpening",
        "rotation loss",
        "Berthelot 2020",
        preset=_EQUAL | _CTA | {"cutout": 0},
        dataset_presets=_LABELED_STRONG | {"stl10": {"labeled_view": "strong", "guesses": 4}},
    ),
    "fixmatch-ra": MethodInfo(FixMatch, "weak, strong", "threshold", "RandAugment", "Sohn 2020"),
    "fixmatch-cta": MethodInfo(FixMatch, "weak, strong", "threshold", "CTAugment", "Sohn 2020", preset=_CTA),
    "flexmatch": MethodInfo(FlexMatch, "weak, strong", "threshold per class", "learned counts", "Zhang 2021"),
    "freematch": MethodInfo(
        FreeMatch,
        "weak, strong",
        "adaptive threshold per class",
        "fairness loss",
        "Wang 2023",
        dataset_presets={"svhn": {"lowest_threshold": 0.9, "highest_threshold": 0.95}},
    ),
    "softmatch": MethodInfo(SoftMatch, "weak, strong", "weight, alignment", "no threshold", "Chen 2023"),
    "adamatch": MethodInfo(
        AdaMatch,
        "weak, strong",
        "alignment, relative threshold",
        "labeled images in two passes",
        "Berthelot 2022",
        preset={"mu": 3},
    ),
    "dash": MethodInfo(Dash, "weak, strong", "sharpening, threshold on the loss", "falling threshold", "Xu 2021"),
    "comatch": MethodInfo(
        CoMatch, "weak, strong", "alignment, smoothing, threshold", "embeddings follow pseudo-labels", "Li 2021"
    ),
    "simmatch": MethodInfo(
        SimMatch, "weak, strong", "alignment, smoothing, threshold", "similarities to labeled images", "Zheng 2022"
    ),
    "defixmatch": MethodInfo(DeFixMatch, "weak, strong", "threshold", "unbiased unlabeled loss", "Schmutz 2023"),
    "refixmatch": MethodInfo(
        ReFixMatch, "weak, strong", "threshold, sharpening", "soft targets below the threshold", "Nguyen 2023"
    ),
    "crmatch": MethodInfo(CRMatch, "weak, strong", "threshold", "feature distance, rotation loss", "Fan 2021"),
    "sequencematch": MethodInfo(
        SequenceMatch, "weak, medium, strong", "threshold per class", "a view in between", "Nguyen 2023"
    ),
    "finessl": MethodInfo(FineSSL, "weak, strong", "weight", "balanced margin softmax", "Gan 2024", preset=_EQUAL),
    "rankingmatch-bm": _ranking("bm", "BatchMean triplet"),
    "rankingmatch-ct": _ranking("ct", "contrastive"),
    "rankingmatch-bh": _ranking("bh", "BatchHard triplet"),
    "rankingmatch-ba": _ranking("ba", "BatchAll triplet"),
    "rankingmatch-bm+ct": _ranking("bm+ct", "BatchMean + contrastive", "future work in the paper"),
}

# When to choose a method, in a few words.
GOOD_FOR: dict[type[Method], str] = {
    Supervised: "the error without unlabeled images",
    PseudoLabel: "a baseline without strong augmentation",
    PiModel: "a baseline without strong augmentation",
    MeanTeacher: "a baseline without strong augmentation",
    VAT: "inputs without known augmentations",
    SWWAE: "a baseline that reconstructs images",
    CCGAN: "a baseline that generates images",
    UDA: "soft targets at a lower threshold",
    MixMatch: "images for which only weak augmentation is known",
    RealMix: "unlabeled images of other classes",
    ReMixMatch: "very few labels, if time does not matter",
    FixMatch: "a fast, well-known baseline",
    FlexMatch: "classes that differ in difficulty",
    FreeMatch: "very few labels; no threshold to choose",
    SoftMatch: "short runs and fine-tuning: no image is dropped",
    AdaMatch: "labeled and unlabeled images that differ in distribution",
    Dash: "a threshold that becomes stricter during training",
    CoMatch: "many unlabeled images that form clusters",
    SimMatch: "few labels: unlabeled images follow similar labeled ones",
    DeFixMatch: "many labels: safe if pseudo-labels are often wrong",
    ReFixMatch: "using images below the threshold, too",
    CRMatch: "images whose orientation carries information",
    SequenceMatch: "strong views that are too far from weak ones",
    FineSSL: "pretrained networks that prefer some classes",
    RankingMatch: "embeddings in which classes are far apart",
}


def find_method(name: str) -> MethodInfo:
    """Find a method by name.

    Parameters
    ----------
    name : str
        A name in `METHODS`, or the import path ``package.module:Class`` of a subclass of `Method`.

    Returns
    -------
    MethodInfo
        The class and what is known about it.

    Raises
    ------
    ConfigError
        If there is no such method.
    """
    if ":" in name:
        return MethodInfo(_imported(name))
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
    """List the hyperparameters of a method.

    Parameters
    ----------
    name : str
        The name of the method, as in `find_method`.

    Returns
    -------
    list of Option
        Name, default, help text and allowed values of each.
    """
    info = find_method(name)
    variants = set(info.variant.split("+"))
    return [option for option in options_of(info.method) if not option.used_by or variants.intersection(option.used_by)]


def make_method(name: str, hyperparameters: Mapping[str, Any] | None = None) -> Method:
    """Make a method.

    Parameters
    ----------
    name : str
        The name of the method, as in `find_method`.
    hyperparameters : mapping, optional
        Values of its hyperparameters; the others have their defaults.

    Returns
    -------
    Method
        The method; call `Method.prepare` before the first step.

    Raises
    ------
    ConfigError
        If there is no such method, or a hyperparameter is unknown or has a value that is not allowed.
    """
    info, given = find_method(name), hyperparameters or {}
    known = [option.name for option in hyperparameters_of(name)]
    for other in given:
        if other not in known:
            names = ", ".join(map(setting, known)) or "none"
            raise ConfigError(f"{setting(other)} is not used by the method '{name}'; its hyperparameters: {names}")
    variant = {"ranking": info.variant} if info.variant else {}
    method = info.method(**variant, **given)
    validate(method)
    return method


def __dir__() -> list[str]:
    return __all__
