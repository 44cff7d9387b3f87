"""The options about images and labels."""

from dataclasses import dataclass

from rankingmatch.core.options import option

__all__ = ["DataSettings"]


@dataclass(frozen=True)
class DataSettings:
    """Which images and labels a run uses."""

    labels: int | None = option(
        None,
        "Number of training labels to keep, the same for each class; all others are hidden. 0 keeps all.",
        interval="[0, inf)",
        kind="labels",
    )
    validation: int = option(
        0, "Number of labeled training images held out for validation.", interval="[0, inf)", kind="labels"
    )
    imbalance: float | None = option(
        None,
        "γ: keep a long tail of labels. Class k of K has γ^(-(k-1)/(K-1)) times as many as the first class; below 1, "
        "the last class has most.",
        interval="(0, inf)",
        kind="labels",
    )
    unlabeled_imbalance: float | None = option(
        None,
        "γ of the unlabeled images, of which the others are left out; as {imbalance} by default.",
        interval="(0, inf)",
        kind="labels",
    )
    split: str | None = option(
        None,
        "The split.json of a run: use its labeled and validation images instead of drawing them with the seed.",
        kind="labels",
        path=True,
    )
    unlabeled: str | None = option(
        None,
        "A folder of unlabeled images, or shards, in addition to the images of a folder.",
        kind="source",
        path=True,
    )
    labels_csv: str | None = option(
        None,
        "The labels of a folder's images: a CSV file with the columns file and label, which is empty for unlabeled "
        "images; a column part may say train, test, or none for images to leave out.",
        kind="source",
        path=True,
    )
    balanced: bool = option(False, "Draw labeled images of all classes equally often, however many each class has.")
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
        "Resize all images to squares of this side; {padding} and {cutout} follow unless given.",
        interval="[1, 4096]",
        kind="source",
    )
