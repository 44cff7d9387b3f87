"""`predict --on ray` writes what one process writes, also if workers are killed."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from on_ray import dying_task, needs_ray
from PIL import Image

from rankingmatch.cli import main
from rankingmatch.core.errors import RunError
from rankingmatch.runs import predict
from rankingmatch.runs.directory import Run
from rankingmatch.runs.predict import predict_files, predict_on_ray
from rankingmatch.runs.ray import WithoutRay, ray_connection

FILES = 1000
QUICK = ["--steps", "4", "--batch-size", "8", "--mu", "1", "--network", "wrn-10-1", "--threads", "1", "--no-report"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and files of which some are not images."""
    path = tmp_path_factory.mktemp("on ray")
    main(["train", "digits", *QUICK, "--out", str(path / "run"), "--quiet"])
    rng = np.random.default_rng(0)
    (path / "images").mkdir()
    for number in range(FILES):
        file = path / "images" / f"{number:04}.png"
        if number % 100 == 7:
            file.write_bytes(b"not an image")
        else:
            Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(file)
    return path


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with ray_connection(None), pytest.MonkeyPatch.context() as patch:
        patch.setattr(predict, "GROUPS", 1)  # small pieces
        yield


@needs_ray
@pytest.mark.usefixtures("cluster")
def test_the_table_equals_that_of_one_process(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    for flags in ([], ["--on", "ray"]):
        main(["predict", "run", "images", "--probabilities", "--out", f"{len(flags)}.csv", *flags])
        assert "10 files were skipped: images/0007.png" in capsys.readouterr().err
    assert Path("2.csv").read_bytes() == Path("0.csv").read_bytes()
    assert len(Path("0.csv").read_text().splitlines()) == 1 + FILES - 10


@needs_ray
@pytest.mark.usefixtures("cluster")
def test_workers_that_are_killed_twice_cost_their_pieces_only(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    monkeypatch.setattr(predict, "_predict_piece", dying_task(predict._predict_piece, calls, at=(2, 6)))
    files = sorted(map(str, (place / "images").iterdir()))
    run = Run(place / "run")
    device = run.config().device("cpu")
    model, info = run.load_model(device)
    expected = list(predict_files(model, info, files, device, FILES))
    found = list(predict_on_ray(run, info, files, device="cpu", count=FILES))
    assert calls.stat().st_size == len(expected) + 2
    assert [batch.files for batch in found] == [batch.files for batch in expected]
    assert [batch.skipped for batch in found] == [batch.skipped for batch in expected]
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine.probabilities, theirs.probabilities)
    with pytest.raises(RunError, match="nowhere"):  # a mistake of a worker
        list(predict_on_ray(Run(place / "nowhere"), info, ["a.png"]))


def test_what_ray_prints_about_lost_workers_is_not_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.redirect_stdout(WithoutRay(sys.stdout)):
        thread = threading.Thread(target=print, args=["A worker died"], name="ray_listen_error_messages")
        thread.start()
        thread.join()
        print("file,label")
        assert not sys.stdout.isatty()
    assert capsys.readouterr() == ("file,label\n", "A worker died\n")
