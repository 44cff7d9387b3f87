"""From a folder of unlabeled photographs to an exported model, by the commands of the README, and how long it takes.

    python benchmarks/first_model.py data/clothing

DIRECTORY has class folders in train/ and test/. The photographs of train/ are put into one folder, a script gives the
true labels on the labeling page, each after as many seconds as a person takes, and the predictions for test/ are
compared with the truth.
"""

import argparse
import csv
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests/helpers"))

from tour import commands, label, run, timed

from measuring import Rows, add_keep, markdown, report


def table(rows: Rows) -> str:
    """A line for each step."""
    lines = [(str(row["step"]), _duration(float(row["seconds"])), str(row["what"])) for row in rows]
    return markdown(("step", "time", ""), lines)


def total(rows: Rows) -> str:
    """How long all of it took, and how good the model is."""
    notes = {str(row["step"]): str(row["what"]) for row in rows}
    pause = notes["label"].rpartition("after ")[2]
    time = _duration(sum(float(row["seconds"]) for row in rows))
    return f"{time} for photographs of clothing, with a script that labels one every {pause}; {notes['predict']}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def main() -> None:
    """Do all of it in a temporary directory, with an empty cache."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--labels", type=int, default=50, help="pictures to label, random checks among them")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each label")
    add_keep(parser)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        os.environ["XDG_CACHE_HOME"] = f"{directory}/cache"
        place = Path(directory)
        truth = _flattened(given.directory / "train", place / "photos")
        new = _flattened(given.directory / "test", place / "new-photos")
        classes = sorted(set(truth.values()))
        rows = [
            {
                "step": "label",
                "seconds": timed("label", label, place, classes, given.labels, truth.__getitem__, given.seconds),
                "what": f"{given.labels} of {len(truth):,} photographs in {len(classes)} classes, random checks among "
                f"them; a script gives the true label after {given.seconds:g} seconds",
            }
        ]
        notes = {"train": "fine-tuning on labels and all other photographs", "evaluate": "on the random checks"}
        for command in commands(steps=None):
            seconds = timed(command[0], run, place, *command)
            rows.append({"step": command[0], "seconds": seconds, "what": notes.get(command[0], "")})
            if command[0] == "predict":
                rows[-1]["what"] = _accuracy(place / "predictions.csv", new)
    report(table(rows), rows, given.keep)


def _flattened(folder: Path, place: Path) -> dict[str, str]:
    """Copy class folders into one folder; returns the class of each name, which does not show it."""
    place.mkdir()
    truth = {}
    for number, path in enumerate(sorted(path for path in folder.glob("*/*") if path.is_file())):
        name = f"{(number * 7919) % 100_000:05}{path.suffix}"  # in no order of classes
        shutil.copy(path, place / name)
        truth[name] = path.parent.name
    return truth


def _accuracy(predictions: Path, truth: dict[str, str]) -> str:
    with predictions.open(newline="") as file:
        right = [truth[Path(row["file"]).name] == row["label"] for row in csv.DictReader(file)]
    error = 100 * (1 - sum(right) / len(right))
    return f"{error:.1f}% of the predictions for {len(right):,} new photographs were wrong"


if __name__ == "__main__":
    main()
