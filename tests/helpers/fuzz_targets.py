"""What is fuzzed: for each kind of file, valid ones and the way a user's command reads it."""

import contextlib
import gzip
import io
import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import original_files
import torch
from image_folders import class_folders
from PIL import Image
from real_images import photographs, to_pil
from safetensors import safe_open
from safetensors.torch import load_file, save
from shard_files import member, samples, write_parquet, write_tar
from tiny import CPU, tiny_settings, tiny_split, tiny_state

from rankingmatch.bench.recipe import RECIPES, cells, read_recipe
from rankingmatch.bench.results import kept_of, kept_outcome
from rankingmatch.bench.simulated_labeling import read_labelings
from rankingmatch.data import benchmark
from rankingmatch.data.decode import decode, decode_files, read_header
from rankingmatch.data.folder_contents import scan_folder
from rankingmatch.data.label_journal import LabelEvent, format_events
from rankingmatch.data.split import read_rows
from rankingmatch.labeling.folder import open_session
from rankingmatch.networks import make_classifier
from rankingmatch.runs.checkpoint import checksums, restore_latest, save_checkpoint
from rankingmatch.runs.config import repeat_command, resolve
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import start, training_records
from rankingmatch.runs.model import ModelInfo, load_model, save_model
from rankingmatch.training.loop import train

KEPT = Path(__file__).parents[2] / "docs/results"


@dataclass(frozen=True)
class Target:
    """Valid files by their paths, and the reader: it puts a content where the path says, and reads it."""

    seeds: list[tuple[Path, bytes]]
    read: Callable[[Path, bytes], object]


def written(seeds: list[tuple[Path, bytes]], read: Callable[[Path], object]) -> Target:
    """Files that are read where they are written."""

    def write_and_read(path: Path, content: bytes) -> object:
        path.write_bytes(content)
        return read(path)

    return Target(seeds, write_and_read)


def benchmark_files(name: str, make: Callable[[Path], object]) -> Callable[[Path], Target]:
    """The original files of a dataset, one damaged at a time, and inside, too, if it is zipped; loaded by its name."""

    def target(place: Path) -> Target:
        folder = place / "data"
        folder.mkdir()
        make(folder)
        good = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
        inside = {path.with_suffix(""): gzip.decompress(good[path]) for path in good if path.suffix == ".gz"}

        def read(path: Path, content: bytes) -> object:
            stored = path if path in good else path.with_name(f"{path.name}.gz")
            stored.write_bytes(content if path in good else gzip.compress(content, 1))
            try:
                return benchmark(name).load(folder)
            finally:
                stored.write_bytes(good[stored])
                shutil.rmtree(place / "cache", ignore_errors=True)

        return Target([*good.items(), *inside.items()], read)

    return target


def cifar10_archive(place: Path) -> None:
    original_files.cifar10_binary(place)
    original_files.packed(place, "cifar-10-batches-bin", "cifar-10-binary.tar.gz")


def decoded(path: Path) -> object:
    """The images of shards, listed and decoded."""
    contents = scan_folder(path)
    return contents.fingerprint(), list(decode_files(map(contents.path, contents.stored), (16, 16, 3)))


def shards(place: Path) -> Target:
    """A tar of images and labels in each format of tar, listed and decoded."""
    root = class_folders(place / "photos", each=2)
    extra = [member("long/" * 60 + "caf\u00e9.png", b"x"), member("a.json", b'{"label": 1}'), member("a.png", b"y")]
    formats = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
    seeds = []
    for number, format in enumerate(formats):
        path = write_tar(place / f"{number}.tar", [*samples(root), *(extra if number else extra[1:])], format)
        seeds.append((path, path.read_bytes()))

    return written(seeds, decoded)


def parquet(place: Path) -> Target:
    """A Parquet file of images and labels, listed and decoded."""
    images = [path.read_bytes() for path in sorted(class_folders(place / "photos", each=2).rglob("*.png"))]
    path = write_parquet(place / "x.parquet", [*images, None], [0, 0, 1, 1, 2, 2, 1])

    return written([(path, path.read_bytes())], decoded)


def labels_csv(place: Path) -> Target:
    root = class_folders(place / "photos")
    files = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.png"))
    pairs = [(file, file.split("/")[0] if number % 2 else "") for number, file in enumerate(files)]
    one = "file,label\n" + "".join(f"{file},{label}\n" for file, label in pairs)
    other = "\ufefflabel,file\r\n" + "".join(f'"{label}",{file}\r\n' for file, label in pairs)
    table = place / "labels.csv"

    seeds = [(table, one.encode()), (table, other.encode())]
    return written(seeds, lambda path: scan_folder(root, labels_csv=path).fingerprint())


def label_journal(place: Path) -> Target:
    """The journal of a labeling session, read to train and to continue the session."""
    root = class_folders(place / "photos")
    files = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.png"))
    events = [LabelEvent(file, file.split("/")[0], "train", str(at), "hand") for at, file in enumerate(files)]
    events += [LabelEvent(files[0], "", "none", "90", "hand"), LabelEvent(files[1], "red", "test", "91", "audit")]
    events += [LabelEvent("", "teal", "class:green", "92", "rename"), LabelEvent(files[2], origin="undo", time="93")]
    content = b"file,label,part,time,origin\n" + format_events(events)

    def read(path: Path) -> object:
        session = open_session(root, path)
        try:
            session.state()
        finally:
            session.journal.close()
        return scan_folder(root, labels_csv=path).fingerprint()

    return written([(place / "journal.csv", content)], read)


def images(place: Path) -> Target:
    """A photograph in each format and mode, read as for training and for prediction."""
    color, gray = to_pil(photographs(side=48)[3]), to_pil(photographs(1, 48)[5])
    exif = Image.Exif()
    exif[0x0112] = 6
    kinds = [
        *((color, ending, {}) for ending in ("jpg", "png", "webp", "bmp", "tif", "ppm", "jp2", "avif")),
        *((gray, ending, {}) for ending in ("jpg", "png", "pgm")),
        *((color.convert("P"), ending, {"transparency": 3}) for ending in ("png", "gif")),
        *((color.convert("RGBA"), ending, {}) for ending in ("png", "webp", "tif")),
        (gray.convert("I;16"), "png", {}),
        (gray.convert("I;16"), "tif", {"compression": "tiff_lzw"}),
        (color.convert("CMYK"), "jpg", {"exif": exif}),
        (color, "jpg", {"exif": exif, "progressive": True}),
    ]
    seeds = []
    for number, (image, ending, options) in enumerate(kinds):
        content = io.BytesIO()
        image.save(content, Image.registered_extensions()[f".{ending}"], **options)  # type: ignore[arg-type]
        seeds.append((place / f"{number}.{ending}", content.getvalue()))

    return written(seeds, lambda path: (read_header(str(path)), decode(str(path), (32, 32, 3))))


def run_files(place: Path) -> Target:
    """Every file of a run directory, as commands read them; of the model, also the values in its header."""
    run = Run(place / "run")
    settings = {"steps": 4, "batch_size": 8, "mu": 1, "network": "wrn-10-1", "evaluate_every": 2, "threads": 1}
    list(training_records(start(run, resolve("digits", "fixmatch-ra", {**settings, "measure_steps": True}))))
    names = ("config.json", "split.json", "result.json", "metrics.jsonl", "steps.csv", "model.safetensors")
    header, tensors = run.path / "header.json", load_file(run.model_path)
    with safe_open(run.model_path, "pt") as file:
        about = file.metadata()["rankingmatch"].encode()
    seeds = [*((run.path / name, (run.path / name).read_bytes()) for name in names), (header, about)]
    good = dict(seeds)

    def read(path: Path, content: bytes) -> object:
        target = run.model_path if path == header else path
        if path == header:
            content = save(tensors, {"rankingmatch": content.decode("utf-8", "replace")})
        target.write_bytes(content)
        try:
            config, split = run.config(), run.path / "split.json"
            json.dumps(config.to_json())
            if config.data.split is None:
                read_rows(split, torch.zeros(2000, dtype=torch.int64).numpy())
            run.require_no_links()
            plain = run.environment(), run.split_rows(), run.result(), run.history(), run.step_costs()
            model, info = run.load_model(CPU)
            return plain, model(torch.zeros((1, info.channels, 8, 8), dtype=torch.uint8)), repeat_command(config)
        finally:
            target.write_bytes(good[target])

    return Target(seeds, read)


def kept_results(place: Path) -> Target:
    """The file of results that `bench --keep` continues."""
    recipe, lines = read_recipe("digits"), (KEPT / "digits.jsonl").read_bytes().splitlines(keepends=True)
    grid = cells(recipe, folds=None, scale=None, given={})
    seeds = [(place / "digits.jsonl", b"".join(lines[:2]))]
    return written(seeds, lambda path: (kept_of(grid, path), kept_outcome(recipe, path)))


def kept_labelings(place: Path) -> Target:
    """The file of labelings that `bench labeling --keep` continues."""
    path = KEPT / "labeling-digits.json"
    return written([(place / path.name, path.read_bytes())], read_labelings)


def recipes(place: Path) -> Target:
    names = ("demo", "table5", "table9")
    seeds = [(place / f"{name}.toml", (RECIPES / f"{name}.toml").read_bytes()) for name in names]
    return written(seeds, lambda path: cells(read_recipe(str(path)), folds=None, scale=None, given={}))


def checkpoints(place: Path) -> Target:
    """The newest of two is damaged; half of the time its checksum is made to fit, as an enemy would."""
    split, settings = tiny_split(), tiny_settings(steps=4)
    state = tiny_state(split, settings, "freematch")
    for _ in train(state, split, settings):
        save_checkpoint(place / "good", state)
    about, tensors = sorted((place / "good").glob("step-000000004.*"))
    seeds = [(about, about.read_bytes()), (tensors, tensors.read_bytes())]
    here, longer = place / "here", tiny_settings(steps=2**70)
    fresh = tiny_state(split, settings, "freematch")

    def read(path: Path, content: bytes) -> object:
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(place / "good", here)
        (here / path.name).write_bytes(content)
        if len(content) % 2:
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                values = json.loads((here / about.name).read_bytes())
                values |= checksums(values, (here / tensors.name).read_bytes())
                (here / about.name).write_text(json.dumps(values))
        restore_latest(here, fresh)
        return next(train(fresh, split, longer)) if fresh.step != 3 else None  # the damaged one was good enough

    return Target(seeds, read)


def models(place: Path) -> Target:
    state = tiny_state(tiny_split(), tiny_settings())
    path = place / "model.safetensors"
    save_model(path, state.ema, ModelInfo("wrn-10-1", ("a", "b", "ç"), 1, 8, 8, {"estimator": [1]}))
    content = path.read_bytes()
    images = torch.zeros((2, 1, 8, 8), dtype=torch.uint8)

    def read(path: Path) -> object:
        if path.name == "weights.safetensors":
            return make_classifier("wrn-10-1", 3, torch.zeros(1), torch.ones(1), weights=str(path))
        model, _ = load_model(path, CPU)
        return model(images)

    return written([(path, content), (place / "weights.safetensors", content)], read)


TARGETS: dict[str, Callable[[Path], Target]] = {
    "labels-csv": labels_csv,
    "label-journal": label_journal,
    "idx": benchmark_files("fashion-mnist", original_files.fashion_mnist),
    "cifar-bin": benchmark_files("cifar100", original_files.cifar100_binary),
    "stl10-bin": benchmark_files("stl10", original_files.stl10),
    "mat": benchmark_files("svhn", original_files.svhn),
    "pickle": benchmark_files("cifar100", original_files.cifar100_python),
    "tar": benchmark_files("cifar10", cifar10_archive),
    "shards": shards,
    "parquet": parquet,
    "zip": benchmark_files("tiny-imagenet", original_files.tiny_imagenet),
    "images": images,
    "run": run_files,
    "kept": kept_results,
    "labelings": kept_labelings,
    "recipe": recipes,
    "checkpoint": checkpoints,
    "model": models,
}
