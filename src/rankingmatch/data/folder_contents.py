"""What a folder of images, or of shards, contains: classes, files and labels, by names alone: no image is opened."""

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rankingmatch.core.errors import DataError, setting
from rankingmatch.core.names import first_few, printable, text_name
from rankingmatch.data.dataset import HELD_OUT, LABELED, UNLABELED
from rankingmatch.data.decode import CONVERT, FOREIGN, ImageFile, StoredImage, image_suffixes
from rankingmatch.data.label_journal import csv_rows, is_journal, parse_events, read_table, replay
from rankingmatch.data.shards import SHARDS, is_folder, scan_shards, shards_at, stored_images

DEEPEST = 100  # levels of folders
# Labels that other programs write where there is none.
NOTHING = {"None", "none", "NONE", "nan", "NaN", "NAN", "<NA>", "NA", "N/A", "null", "NULL", "-1", "NaT"}

Parts = dict[str, list[tuple[str, str]]]  # files and the names of their classes


@dataclass(frozen=True)
class FolderContents:
    """The image files of a folder, or the images of shards, and their labels."""

    root: Path  # the folder, or a single shard
    classes: tuple[str, ...]  # sorted
    # Files and labels of "train", "validation" and "test". Files are relative to the root, or absolute if elsewhere.
    parts: dict[str, list[tuple[str, int]]]
    notes: tuple[str, ...] = ()  # what the user should know, a line each
    other_files: Mapping[str, int] = field(default_factory=dict)  # files that are not images, by their endings
    stored: Mapping[str, StoredImage] = field(default_factory=dict)  # the images in shards, as SHARD/NAME

    def path(self, file: str) -> ImageFile:
        """The path of a file, or the image in a shard."""
        return self.stored.get(file) or os.path.join(self.root, file)  # noqa: PTH118

    def counts(self) -> list[int]:
        """The number of training images that each class has."""
        counts = Counter(label for _, label in self.parts["train"])
        return [counts[label] for label in range(len(self.classes))]

    def fingerprint(self, *, exactly: bool = False) -> str:
        """A checksum of the names, labels, sizes and modification times of all files.

        A copy of the folder has the same fingerprint. An archive may give all files one time, so that different images
        of equal size have the same one, too; with `exactly`, the times at which files were created here count as well.
        """
        digest = hashlib.sha256(repr(self.classes).encode("utf-8", "surrogateescape"))
        for part, files in self.parts.items():
            for file, label in files:
                path, stamp = self.path(file), "unreadable"
                if not isinstance(path, str):
                    stamp = path.stamp(exactly=exactly)
                else:
                    with contextlib.suppress(OSError):
                        status = os.stat(path)  # noqa: PTH116
                        created = f" {status.st_ctime_ns}" if exactly else ""
                        stamp = f"{status.st_size} {status.st_mtime_ns}{created}"
                digest.update(b"%b\0%b\0%d %b\n" % (part.encode(), os.fsencode(file), label, stamp.encode()))
        return digest.hexdigest()[:16]


def scan_folder(root: Path, unlabeled: Path | None = None, labels_csv: Path | None = None) -> FolderContents:
    """List the images of a folder in any of the layouts, or of shards.

    Training images are in class folders, which are in labeled/ or train/ or in the folder itself; or anywhere in the
    folder, with a CSV file of labels. val/ (or validation/) and test/ have class folders, too; unlabeled/ has images.
    Shards have their labels in them, and such words in their names.
    """
    scanner, stored = FolderScanner(root), dict[str, StoredImage]()
    if shards_at(root):
        parts = _sharded_parts(scanner, labels_csv, stored)
    else:
        parts = _folder_parts(scanner, unlabeled, labels_csv)
    more = [file for file, _ in parts.pop("unlabeled", ())]
    classes = tuple(sorted({name for _, name in parts["train"] if name}))
    others = describe_others(scanner.others)
    if not classes and stored:
        raise DataError(
            f"the training images in the shards of {root} have no labels; add KEY.cls or KEY.json with a label for "
            f"KEY.jpg, or use {setting('labels_csv')}"
        )
    if not classes:
        raise DataError(
            f"{root} has no class folders with images{others}; make a folder of images for each class, in it or in "
            f"its folder labeled/, or use {setting('labels_csv')}"
        )
    if len(classes) == 1:
        raise DataError(
            f"{root} has only one class, '{printable(classes[0])}'{others}; add images that are not of the class"
        )
    for part in ("validation", "test"):
        if unseen := sorted({name for _, name in parts.get(part, ())} - set(classes)):
            raise DataError(
                f"{root}: the class '{printable(unseen[0])}' of the {part} images has no training images; label some, "
                "or delete those images"
            )
    index = {name: label for label, name in enumerate(classes)} | {"": UNLABELED}
    labeled = {part: [(file, index[name]) for file, name in files] for part, files in parts.items() if files}
    if unlabeled is not None and shards_at(unlabeled):
        elsewhere = {str(image): image for image in stored_images(unlabeled)}
        stored.update(elsewhere)
        more += elsewhere
    elif unlabeled is not None:
        more += scanner.images(unlabeled)
    # Labeled images keep their labels, and held-out images never get into training.
    seen = {file for files in labeled.values() for file, _ in files}
    labeled["train"] += [(file, UNLABELED) for file in dict.fromkeys(more) if file not in seen]
    return FolderContents(root, classes, labeled, tuple(scanner.notes), scanner.others, stored)


def _folder_parts(scanner: "FolderScanner", unlabeled: Path | None, labels_csv: Path | None) -> Parts:
    """The files and labels of a folder, for each part; "unlabeled" is the folder of this name."""
    root = scanner.root
    if labels_csv is not None:
        scanner.table = os.fspath(labels_csv)
        reserved = tuple(f"{name}{os.sep}" for name in HELD_OUT)
        files = [file for file in scanner.images(root) if not file.startswith(reserved)]
        parts = scanner.labeled_by(labels_csv, files)
    else:
        parts = {"train": list(scanner.class_folders(_labeled_root(root), unlabeled))}
    for name, part in HELD_OUT.items():
        if (root / name).is_dir():
            parts.setdefault(part, []).extend(scanner.class_folders(root / name))
    if labels_csv is None and (root / "unlabeled").is_dir():
        parts["unlabeled"] = [(file, "") for file in scanner.images(root / "unlabeled")]
    return parts


def _sharded_parts(scanner: "FolderScanner", labels_csv: Path | None, stored: dict[str, StoredImage]) -> Parts:
    """The files and labels of shards, for each part; `stored` gets the images by the names of the files."""
    parts: Parts = {"train": []}
    for part, image, label in scan_shards(scanner.root, own_labels=labels_csv is None):
        file = str(image).removeprefix(f"{scanner.root}/")
        stored[file] = image
        parts.setdefault(part, []).append((file, label))
    for part in ("validation", "test"):
        if bare := [file for file, label in parts.get(part, ()) if not label]:
            scanner.notes.append(f"skipped {len(bare):,} {part} images without labels: {first_few(bare)}")
            parts[part] = [(file, label) for file, label in parts[part] if label]
    if labels_csv is not None:
        training = [file for part in ("train", "unlabeled") for file, _ in parts.pop(part, ())]
        for part, files in scanner.labeled_by(labels_csv, training).items():
            parts[part] = [*parts.get(part, ()), *files]
    return parts


def _labeled_root(root: Path) -> Path:
    present = [root / name for name in LABELED if (root / name).is_dir()]
    if len(present) > 1:
        raise DataError(f"{root} has both labeled/ and train/; rename the one that does not have the labeled images")
    return present[0] if present else root


def labeled_files(root: Path, classes: tuple[str, ...]) -> tuple[list[ImageFile], list[int]]:
    """The images in a folder's test/, or else in its class folders, or those of shards, to evaluate a model on.

    Each has the index of its class in `classes`, those of the model; DataError for any other class.
    """
    pairs: list[tuple[ImageFile, str]]
    if shards_at(root):
        found = [(part, image, label) for part, image, label in scan_shards(root) if label]
        chosen = "test" if any(part == "test" for part, _, _ in found) else "train"
        pairs, problem = [(image, label) for part, image, label in found if part == chosen], "no images with labels"
    else:
        scanner = FolderScanner(root)
        folder = root / "test" if (root / "test").is_dir() else _labeled_root(root)
        pairs = [(os.path.join(root, file), name) for file, name in scanner.class_folders(folder)]  # noqa: PTH118
        problem = f"neither test/ nor class folders with images{describe_others(scanner.others)}"
    if not pairs:
        raise DataError(f"{root} has {problem}")
    if unknown := sorted({name for _, name in pairs} - set(classes)):
        raise DataError(
            f"{root}: the model was not trained on the class '{printable(unknown[0])}', only on {', '.join(classes)}"
        )
    return [file for file, _ in pairs], [classes.index(name) for _, name in pairs]


def images_below(place: Path) -> Iterator[ImageFile]:
    """The images of shards in their order, or the paths of the images below a folder, sorted within each folder.

    Links are followed, but never in a circle.
    """
    if shards_at(place):
        return stored_images(place)
    return (os.path.join(place, file) for file in FolderScanner(place).images(place))  # noqa: PTH118


def describe_others(endings: Mapping[str, int]) -> str:
    """What the files are that are not read as images, and what to do if they are images; empty without such files."""
    found = [f"{count:,} {ending}" for ending, count in Counter(endings).most_common(3) if count]
    if not found:
        return ""
    foreign = next((f"; {CONVERT}" for ending in endings if ending in FOREIGN), "")
    return f" (other files, by their names: {', '.join(found)}{foreign})"


class FolderScanner:
    """Walks through a folder and notes what the user should know."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.real_root = os.path.realpath(root)  # links do not lead from one part of it into another
        self.notes: list[str] = []
        self.others: Counter[str] = Counter()  # endings of the names of files that are not images
        self.table: str | None = None  # of labels, which may be in the folder

    def class_folders(self, folder: Path, unlabeled: Path | None = None) -> Iterator[tuple[str, str]]:
        """Every image of every class folder, with the folder's name; `unlabeled` is not a class."""
        reserved = {*HELD_OUT, "unlabeled"} if folder == self.root else set()
        loose = []
        for entry in self._entries(folder):
            if entry.name in reserved or entry.name.startswith(".") or (unlabeled and Path(entry.path) == unlabeled):
                continue
            if not is_folder(entry):
                loose += [entry.name] if _ending(entry.name) in image_suffixes() else []
                self.others.update({_ending(entry.name)} & (FOREIGN | SHARDS))
                continue
            if entry.is_symlink() and self._overlaps(os.path.realpath(entry.path)):
                self.notes.append(
                    f"skipped the class '{printable(entry.name)}': it is a link to another folder in {folder}"
                )
                continue
            name, empty = text_name(entry.name), True
            if os.fsencode(name) != os.fsencode(entry.name) and os.path.lexists(folder / name):
                raise DataError(f"{folder} has two folders whose names are shown as '{name}'; rename one of them")
            for file in self.images(Path(entry.path), stay=True):
                empty = False
                yield file, name
            if empty:
                self.notes.append(f"skipped the class '{printable(name)}': it has no images in {folder}")
        if loose:
            self.notes.append(
                f"skipped {len(loose):,} images in {folder} that are not in a class folder: {first_few(sorted(loose))}"
            )

    def labeled_by(self, table: Path, files: list[str]) -> Parts:
        """Files, relative to the root, with their labels in a journal or another CSV file: "train", and maybe "test".

        Images of none of the classes are in no part.
        """

        def relative(file: str) -> str:
            return os.path.relpath(os.path.join(self.root, file), self.root) if file else file  # noqa: PTH118

        content = read_table(table)
        labels: dict[str, tuple[str, str]] = {}
        if is_journal(content):
            events = replay(parse_events(content, table)[0])
            labels = {relative(file): (text_name(label), part) for file, (label, part) in events.items()}
        else:
            for line, file, label, part in csv_rows(table, content):
                before, _ = labels.get(relative(file), ("", ""))
                if before not in ("", label):
                    both = f"'{before}' and '{label}'"
                    raise DataError(f"{table}, line {line}: '{printable(file)}' has two labels, {both}")
                labels[relative(file)] = label, part
            for label in sorted({label for label, _ in labels.values()} & NOTHING):
                self.notes.append(
                    f"'{label}' is a class, because {table} has it as a label; leave it empty if there is none"
                )
        present = set(files)
        missing = [file for file in labels if file not in present]
        if len(missing) > len(files):
            raise DataError(f"{table} has {len(missing):,} files that are not in {self.root}: {first_few(missing)}")
        if missing:
            self.notes.append(f"{table} has labels for {len(missing):,} files that do not exist: {first_few(missing)}")
        known = {label for label, part in labels.values() if part in ("", "train")}
        parts: Parts = {"train": []}
        untrained = []
        for file in files:
            label, part = labels.get(file, ("", ""))
            if part == "test" and label and label not in known:
                untrained.append(file)
            elif part != "none":
                parts.setdefault("test" if part == "test" and label else "train", []).append((file, label))
        if untrained:
            self.notes.append(
                f"skipped {len(untrained):,} test images of classes without training images: {first_few(untrained)}"
            )
        return parts

    def images(self, folder: Path, *, stay: bool = False) -> Iterator[str]:
        """The images below a folder, depth first, each folder once; relative to the root if they are in it.

        With `stay`, no link leads out of the folder. There is a note about each folder too deep, or behind a link.
        """
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}")
        prefix, suffixes = os.path.join(self.root, ""), image_suffixes()  # noqa: PTH118
        base, seen = os.path.realpath(folder), {_identity(folder)}
        levels = [iter(self._entries(folder))]
        while levels:
            entry = next(levels[-1], None)
            if entry is None:
                levels.pop()
            elif entry.name.startswith("."):
                continue
            elif is_folder(entry):
                target, link = os.path.realpath(entry.path), entry.is_symlink()
                if len(levels) >= DEEPEST:
                    reason = f"it is more than {DEEPEST} levels deep"
                elif link and _is_below(base, target):
                    reason = "it is a link to one of its parent folders"
                elif link and (_is_below(target, base) or _identity(entry.path) in seen):
                    reason = "it is a link to a folder that is read already"
                elif link and (stay or self._overlaps(target)):
                    reason = "it is a link to a folder outside; move the images here"
                else:
                    seen.add(_identity(entry.path))
                    levels.append(iter(self._entries(entry.path)))
                    continue
                self.notes.append(f"skipped {printable(entry.path)}: {reason}")
            elif _ending(entry.name) not in suffixes:
                self.others[_ending(entry.name)] += entry.path != self.table
            elif entry.is_symlink() or entry.is_file():  # neither a device nor a pipe
                yield entry.path.removeprefix(prefix)

    def _overlaps(self, target: str) -> bool:
        """Whether a folder is in the dataset, or the dataset in it."""
        return _is_below(target, self.real_root) or _is_below(self.real_root, target)

    def _entries(self, folder: "str | Path") -> "list[os.DirEntry[str]]":
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.notes.append(f"skipped {printable(str(folder))}: it cannot be read ({error.strerror})")
            return []


def _is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or below it."""
    return os.path.join(path, "").startswith(os.path.join(folder, ""))  # noqa: PTH118


def _identity(folder: "str | Path") -> tuple[int, int]:
    status = os.stat(folder)  # noqa: PTH116
    return status.st_dev, status.st_ino


def _ending(name: str) -> str:
    return os.path.splitext(name)[1].lower()  # noqa: PTH122
