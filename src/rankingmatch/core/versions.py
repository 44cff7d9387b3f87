"""The format number of every kind of file that we write.

A change that an older version could not read gets the next number. A file without a number has format 1: it was
written before files had numbers.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankingmatch.core.errors import RunError

__all__ = ["FORMATS", "check_format"]

FORMATS = {
    "config": 2,  # 2: `licence` became `license`
    "split": 2,  # 2: the unlabeled images, if some are left out
    "metrics": 1,  # each line of metrics.jsonl, and each event that a command prints as JSON
    "result": 2,  # 2: balanced errors, and the recall of each class
    "checkpoint": 3,  # 2: CTAugment's rates by the name of the operation; 3: learned labels as a module of the method
    "model": 3,  # 2: whether images are cropped or squeezed to the shape; 3: how files are read
}


def check_format(kind: str, values: Mapping[str, Any], path: Path) -> None:
    """Raise RunError if a file was written by a newer version of this package than the one that reads it."""
    found = values.get("format", 1)
    if type(found) is not int or found < 1:
        raise RunError(f"{path}: format is {found!r}; it must be a positive number, or the file is damaged")
    if found > FORMATS[kind]:
        raise RunError(
            f"{path} was written by a newer version of rankingmatch (format {found}; this version reads up to "
            f"{FORMATS[kind]}); upgrade rankingmatch to use it"
        )
