"""A run directory from a stranger: whatever its files are, one sentence, and nothing is written elsewhere."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from limits import gigabyte
from safetensors import safe_open
from safetensors.torch import load, save

from rankingmatch import RankingMatchClassifier
from rankingmatch.core.errors import RankingMatchError
from rankingmatch.runs.config import plan_of, resolve
from rankingmatch.runs.directory import Run
from rankingmatch.runs.evaluate import evaluate
from rankingmatch.runs.export import export
from rankingmatch.runs.job import start, training_records
from rankingmatch.runs.report import write_report

CPU = torch.device("cpu")
SETTINGS = {"steps": 4, "batch_size": 8, "mu": 1, "network": "wrn-10-1", "evaluate_every": 2, "threads": 1}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = Run(tmp_path_factory.mktemp("finished") / "run")
    list(training_records(start(run, resolve("digits", "fixmatch-ra", {**SETTINGS, "measure_steps": True}))))
    return run.path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Run:
    """A copy of a finished run, to be spoiled."""
    shutil.copytree(finished, tmp_path / "run")
    return Run(tmp_path / "run")


@pytest.fixture
def bounded() -> Iterator[None]:
    """A gigabyte of addresses beyond those in use, and five seconds."""
    started = time.process_time()
    with gigabyte():
        yield
    assert time.process_time() - started < 5


# --- values --------------------------------------------------------------------------------------------------


def header_of(path: Path) -> str:
    """What a model says of itself, as JSON."""
    with safe_open(path, "pt") as file:
        return str(file.metadata()["rankingmatch"])


def set_header(path: Path, **changed: Any) -> None:
    """Write other values into the header of a model; `...` removes one."""
    values = {**json.loads(header_of(path)), **changed}
    values = {name: value for name, value in values.items() if value is not ...}
    path.write_bytes(save(load(path.read_bytes()), {"rankingmatch": json.dumps(values)}))


ESTIMATOR = {"parameters": {"network": "wrn-10-1"}, "classes": list(range(10)), "white": 255.0}
MANY = [str(number) for number in range(100_000)]
# For each file of a run, or part of the header of its model, values that it cannot have.
HOSTILE: dict[str, dict[str, list[Any]]] = {
    "header": {
        "height": ["12", -1, 100_000],
        "width": [0, 8.5],
        "channels": [True, 3, 2**31],
        "network": [3, None, ..., "wrn-600004-1", "wrn-28-900", "wrn-28-10", "x" * 50_000, "os:system", "helper:make"],
        "classes": [MANY, list(range(10)), "0123456789", [], [*"012345678", ""], ["a"] * 10, [["0"]] * 10],
        "crop": ["yes"],
        "estimator": [[1]],
        "colour": ["red"],
        "format": [99, "2"],
    },
    "estimator": {
        "parameters": ["x", {"colour": 1}, {"threads": 10**9}, {"steps": "many"}],
        "classes": [[["a"]] * 10, [{}] * 10, ["a"], ...],
        "white": ["bright", 0, -255],
    },
    "result.json": {
        "test_error": ["12", float("nan"), float("inf"), -1, 1000, True, [1], 10**400],
        "seconds": ["x", None, -1, float("nan")],
        "steps": [1.5, "4", -3, 2**80, None],
        "labels": ["40", -1, {}],
        "dataset": [3, None, ["digits"], "x" * 100_000],
        "diverged_at": ["x", -1],
        "best_step": [0.5],
        "seed": ["0"],
        "extra": [1],
    },
    "metrics.jsonl": {
        "step": ["4", None, -1, 1.5, 2**70],
        "test_error": ["x", float("nan"), float("-inf"), 1e9],
        "loss_total": ["x", float("nan"), {}],
        "class_shares": ["x", [None], ["0.1"], [float("nan")], 3],
        "best": ["yes", 1],
        "memory": ["much", float("inf")],
        "seconds": [[], -5],
    },
    "split.json": {
        "labeled": ["x", None, [1.5], ["3"], [-1], {}],
        "validation": [3, [[1]]],
        "skipped": [[1], [["a"]], "x"],
    },
    "config.json": {
        "method": [3, None, "nothing", "helper:Class"],
        "dataset": [3, None, "nowhere", "\0"],
        "environment": [3, [1]],
    },
}


def read_everything(run: Run) -> None:
    """Read every file of a run, as the commands do together."""
    config = run.config()
    json.dumps([run.environment(), run.history()], allow_nan=False)
    run.split_rows()
    run.result()
    run.step_costs()
    run.load_model(CPU)
    resolve(config.dataset, None, {})


@pytest.mark.parametrize(
    ("file", "name", "value"),
    [(file, name, value) for file, names in HOSTILE.items() for name, values in names.items() for value in values],
)
def test_a_hostile_value_in_a_file_of_a_run_is_refused(
    file: str, name: str, value: Any, run: Run, bounded: None
) -> None:
    if file == "header":
        set_header(run.model_path, **{name: value})
    elif file == "estimator":
        set_header(run.model_path, estimator={**ESTIMATOR, name: value} if value is not ... else {"x": 1})
    else:
        text = (run.path / file).read_text()
        first, *others = map(json.loads, text.splitlines() if file == "metrics.jsonl" else [text])
        (run.path / file).write_text("".join(json.dumps(line) + "\n" for line in [{**first, name: value}, *others]))
    with pytest.raises(RankingMatchError) as caught:
        RankingMatchClassifier.load(run.model_path) if file == "estimator" else read_everything(run)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 2000


def test_a_run_as_it_was_written_is_read(run: Run, bounded: None) -> None:
    set_header(run.model_path, estimator=ESTIMATOR)
    read_everything(run)
    assert RankingMatchClassifier.load(run.model_path).classes_.tolist() == list(range(10))


FILES = ("config.json", "result.json", "metrics.jsonl", "steps.csv", "split.json", "model.safetensors")


def write_huge(path: Path) -> None:
    """Write a file of many gigabytes that takes no space."""
    with path.open("wb") as file:
        file.truncate(2**40)


SOMETHING_ELSE: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "zeros": lambda path: path.symlink_to("/dev/zero"),
    "directory": Path.mkdir,
    "huge": write_huge,
    "deep": lambda path: path.write_text('{"a":' * 100_000 + "\n"),
    "lists": lambda path: path.write_text("[" + "[]," * 400_000 + "[]]\n"),
    "number": lambda path: path.write_text("9" * 1_000_000 + "\n"),
}


@pytest.mark.parametrize("other", SOMETHING_ELSE)
@pytest.mark.parametrize("file", FILES)
def test_something_else_in_the_place_of_a_file_is_refused(file: str, other: str, run: Run, bounded: None) -> None:
    (run.path / file).unlink()
    SOMETHING_ELSE[other](run.path / file)
    with pytest.raises(RankingMatchError):
        read_everything(run)


@pytest.mark.parametrize("option", ["split", "labels_csv", "weights", "unlabeled"])
@pytest.mark.parametrize("path", ["/dev/zero", "pipe", "/", "/proc/kmsg"])
def test_a_path_in_a_configuration_leads_to_nothing_that_hangs(
    option: str, path: str, run: Run, tmp_path: Path, bounded: None
) -> None:
    os.mkfifo(tmp_path / "pipe")
    values = json.loads((run.path / "config.json").read_text())
    section = "network" if option == "weights" else "data"
    values[section][option] = str(tmp_path / path)
    (run.path / "config.json").write_text(json.dumps(values))
    with pytest.raises(RankingMatchError):
        start(run, plan_of(run.config()))


@pytest.mark.parametrize(
    ("factor", "told"), [(float("nan"), "NaN or infinite"), (float("inf"), "NaN or infinite"), (1e38, "not finite")]
)
def test_weights_that_are_not_finite_or_overflow_are_refused_by_every_command(
    factor: float, told: str, run: Run, tmp_path: Path
) -> None:
    tensors = load(run.model_path.read_bytes())
    for name in ("backbone.head.weight", "backbone.norm.weight"):
        tensors[name] *= factor
    run.model_path.write_bytes(save(tensors, {"rankingmatch": header_of(run.model_path)}))
    for command in (lambda: evaluate(run), lambda: export(run, tmp_path / "model.onnx")):
        with pytest.raises(RankingMatchError, match=told):
            command()
    assert not (tmp_path / "model.onnx").exists()
    assert told in write_report([run.path], tmp_path / "report.html").read_text()


# --- writing -------------------------------------------------------------------------------------------------

WRITTEN = ("checkpoints", "tensorboard", "steps.csv", "metrics.jsonl", ".lock", "report.html", "model.safetensors")


@pytest.mark.parametrize("name", [*WRITTEN, "best.safetensors", "split.json", "result.json", "MODEL_CARD.md"])
def test_links_in_a_run_directory_lead_to_no_change_outside(name: str, run: Run, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "step-000000001.json").write_text("mine")
    (outside / "file").write_text("mine")
    path = run.path / name
    is_directory = name in ("checkpoints", "tensorboard")
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(outside if is_directory else outside / "file")
    path.with_name(f"{name}.{os.getpid()}.tmp").symlink_to(outside / "file")  # what it could be called while written
    if name not in ("result.json", "report.html"):
        (run.path / "result.json").unlink()
    if name == "report.html":
        write_report([run.path], points=10)
        assert not path.is_symlink()
    else:
        with pytest.raises(RankingMatchError):
            list(training_records(start(run, resolve("digits", "fixmatch-ra", {**SETTINGS, "steps": 6}))))
    left = {file.name: file.read_text() for file in outside.iterdir()}
    assert left == {"step-000000001.json": "mine", "file": "mine"}


def test_a_data_directory_in_a_configuration_is_neither_created_nor_filled(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(*_: Any) -> None:
        raise AssertionError("something was downloaded")

    monkeypatch.setattr("rankingmatch.data.files.download", download)
    values = json.loads((run.path / "config.json").read_text())
    values["dataset"] = "cifar10"
    values["execution"]["data_dir"] = str(tmp_path / "elsewhere")
    (run.path / "config.json").write_text(json.dumps(values))
    with pytest.raises(RankingMatchError, match=r"cifar10 is not in .*elsewhere"):
        evaluate(run, None)
    assert "cifar10 is not in" in write_report([run.path]).read_text()
    assert not (tmp_path / "elsewhere").exists()
