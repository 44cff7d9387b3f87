"""The options about images and labels."""

from dataclasses import dataclass

from rankingmatch.core.options import option

__all__ = ["DataSettings"]


@dataclass(frozen=True)
class DataSettings:
    """Which images and labels a run uses."""

    labels: int | None = option(
        None,
        "Number of training labels to keep, the same for each class; the others are hidden. 0 keeps all.",
        interval="[0, inf)",
        kind="labels",
    )
    validation: int = option(
        0, "Number of labeled training images held out for validation.", interval="[0, inf)", kind="labels"
    )
    imbalance: float | None = option(
        None,
        "γ: keep a long tail of labels. Class k of K keeps γ^(-(k-1)/(K-1)) times as many as the first "
        "class; if γ is below 1, the last class keeps the most.",
        interval="(0, inf)",
        kind="labels",
    )
    unlabeled_imbalance: float | None = option(
        None,
        "γ of the unlabeled images; the rest of them is left out. By default, {imbalance}.",
        interval="(0, inf)",
        kind="labels",
    )
    split: str | None = option(
        None,
        "Use the labeled and validation images of this split.json of a run, instead of drawing them.",
        kind="labels",
        path=True,
    )
    unlabeled: str | None = option(
        None,
        "Folder or shards of more unlabeled images.",
        kind="source",
        path=True,
    )
    labels_csv: str | None = option(
        None,
        "CSV file with the labels of a folder's images, in the columns file and label (empty if unlabeled). "
        "An optional column part has train, test, or none to leave an image out.",
        kind="source",
        path=True,
    )
    balanced: bool = option(
        False, "Draw labeled images of all classes equally often, whatever the sizes of the classes."
    )
    include_labeled: bool = option(
        False, "Add the labeled images to the unlabeled ones, as FixMatch did.", kind="labels"
    )
    crop: bool = option(
        False,
        "Crop a folder's images to squares, keeping their proportions, instead of squeezing them.",
        kind="source",
    )
    image_size: int | None = option(
        None,
        "Resize all images to squares with sides of this many pixels; {padding} and {cutout} scale with it "
        "unless given.",
        interval="[1, 4096]",
        kind="source",
    )
