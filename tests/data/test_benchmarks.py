"""Readers of original files: small files in exactly the original formats, and the real files if they are available."""

import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import original_files
import pytest
from scipy.io import savemat

from rankingmatch.core.errors import DataError
from rankingmatch.data import Dataset, DataSettings, benchmark, make_split, no_progress
from rankingmatch.data.benchmarks import FASHION_MNIST
from rankingmatch.data.cache import load_cached, resize_images


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("RANKINGMATCH_DATA", raising=False)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "files"
    directory.mkdir()
    return directory


def caches(tmp_path: Path) -> list[Path]:
    """The directories in the cache."""
    return [path for path in (tmp_path / "cache").glob("rankingmatch/decoded/*") if path.suffix != ".json"]


Write = Callable[[Path], tuple[np.ndarray, np.ndarray]]


@pytest.mark.parametrize(
    ("name", "write", "test_count"),
    [
        ("cifar10", original_files.cifar10_python, 4),
        ("cifar10", original_files.cifar10_binary, 4),
        ("cifar100", original_files.cifar100_python, 4),
        ("cifar100", original_files.cifar100_binary, 4),
        ("svhn", original_files.svhn, 5),
        ("stl10", original_files.stl10, 7),
        ("fashion-mnist", original_files.fashion_mnist, 5),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_images_and_labels_come_back_as_they_were_written(
    name: str, write: Write, test_count: int, data_dir: Path
) -> None:
    images, labels = write(data_dir)
    for _ in range(2):  # decoded, then from the cache
        dataset = benchmark(name).load(data_dir)
        assert dataset.train.images.dtype == np.uint8
        assert np.array_equal(dataset.train.images, images)
        assert np.array_equal(dataset.train.labels, labels)
        assert dataset.test is not None
        assert len(dataset.test) == test_count
        assert len(dataset.classes) == (100 if name == "cifar100" else 10)


@pytest.mark.parametrize(
    ("name", "write", "folder", "archive"),
    [
        ("cifar10", original_files.cifar10_python, "cifar-10-batches-py", "cifar-10-python.tar.gz"),
        ("cifar10", original_files.cifar10_binary, "cifar-10-batches-bin", "cifar-10-binary.tar.gz"),
        ("cifar100", original_files.cifar100_python, "cifar-100-python", "cifar-100-python.tar.gz"),
        ("stl10", original_files.stl10, "stl10_binary", "stl10_binary.tar.gz"),
    ],
)
def test_archives_are_read_without_being_unpacked(
    name: str, write: Write, folder: str, archive: str, data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images, labels = write(data_dir)
    original_files.packed(data_dir, folder, archive)
    dataset = benchmark(name).load(data_dir)
    assert np.array_equal(dataset.train.images, images)
    assert np.array_equal(dataset.train.labels, labels)
    assert [path.name for path in data_dir.iterdir()] == [archive]
    assert f"{archive} is not the original file" in caplog.text


def test_stl10_has_its_folds_and_its_unlabeled_images(data_dir: Path) -> None:
    original_files.stl10(data_dir)
    dataset = benchmark("stl10").load(data_dir)
    assert [len(fold) for fold in dataset.folds] == [5] * 10
    split = make_split(dataset, DataSettings(), seed=1)
    assert split.labeled_rows.tolist() == sorted((1 + 4 * n) % 20 for n in range(5))
    assert len(split.validation_rows) == 15
    assert split.unlabeled_rows.tolist() == list(range(20, 29))


def test_only_the_images_of_a_resized_dataset_differ(data_dir: Path) -> None:
    original_files.stl10(data_dir)
    whole, small = benchmark("stl10").load(data_dir), benchmark("stl10").load(data_dir, 24)
    assert np.array_equal(small.train.images, resize_images(whole.train.images, 24))
    assert np.array_equal(small.train.labels, whole.train.labels)
    assert [fold.tolist() for fold in small.folds] == [fold.tolist() for fold in whole.folds]
    assert isinstance(small.train.images, np.memmap)
    assert small.test is not None
    assert small.test.images.shape[1:] == (24, 24, 3)
    assert benchmark("stl10").load(data_dir, 96).train.images.shape[1:3] == (96, 96)


def test_tiny_imagenet_reads_grayscale_jpegs_and_tests_on_its_validation_images(data_dir: Path) -> None:
    original_files.tiny_imagenet(data_dir)
    dataset = benchmark("tiny-imagenet").load(data_dir)
    assert dataset.classes == ("crane n01", "crane n02", "bow")
    assert dataset.train.images.shape == (12, 64, 64, 3)
    assert dataset.train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    brightness = dataset.train.images.reshape(12, -1).mean(1)
    expected = [40 * label + 10 * number for label in range(3) for number in range(4)]
    assert np.abs(brightness - expected).max() < 2
    assert dataset.test is not None
    assert dataset.test.labels.tolist() == [1, 0]


def test_idx_files_may_be_unzipped(data_dir: Path) -> None:
    images, _ = original_files.fashion_mnist(data_dir, zipped=False)
    assert np.array_equal(benchmark("fashion-mnist").load(data_dir).train.images, images)


@pytest.mark.filterwarnings("ignore")
def test_files_that_the_system_has_installed_are_found_beside_a_directory_for_the_other_datasets(
    data_dir: Path, tmp_path: Path
) -> None:
    images, _ = original_files.fashion_mnist(tmp_path / "installed")
    dataset = load_cached(
        data_dir,
        None,
        no_progress,
        name="fashion-mnist",
        distributions=FASHION_MNIST,
        other_directories=(tmp_path / "installed",),
    )
    assert np.array_equal(dataset.train.images, images)


def test_files_are_found_in_a_folder_of_the_dataset_name_and_by_environment_variable(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_files.cifar10_python(data_dir / "cifar10")
    monkeypatch.setenv("RANKINGMATCH_DATA", str(data_dir))
    assert len(benchmark("cifar10").load(None).train) == 20


def test_the_cache_follows_the_files(data_dir: Path) -> None:
    original_files.cifar10_binary(data_dir)
    before = benchmark("cifar10").load(data_dir).train.labels.copy()
    path = data_dir / "cifar-10-batches-bin/data_batch_1.bin"
    content = bytearray(path.read_bytes())
    content[0] = (content[0] + 1) % 10
    path.write_bytes(bytes(content))
    os.utime(path, ns=(1, 1))
    after = benchmark("cifar10").load(data_dir).train.labels
    assert (before != after).sum() == 1


# --- bad input -----------------------------------------------------------------------------------------------


def truncated_tar(data_dir: Path) -> str:
    original_files.cifar10_python(data_dir)
    original_files.packed(data_dir, "cifar-10-batches-py", "cifar-10-python.tar.gz")
    path = data_dir / "cifar-10-python.tar.gz"
    path.write_bytes(path.read_bytes()[:20_000])
    return "cifar10"


def truncated_zip(data_dir: Path) -> str:
    original_files.tiny_imagenet(data_dir)
    path = data_dir / "tiny-imagenet-200.zip"
    path.write_bytes(path.read_bytes()[:5000])
    return "tiny-imagenet"


def no_zip(data_dir: Path) -> str:
    (data_dir / "tiny-imagenet-200.zip").write_bytes(b"<html>not found</html>")
    return "tiny-imagenet"


def missing_file(data_dir: Path) -> str:
    original_files.svhn(data_dir)
    (data_dir / "test_32x32.mat").unlink()
    return "svhn"


def missing_batch(data_dir: Path) -> str:
    original_files.cifar10_python(data_dir)
    (data_dir / "cifar-10-batches-py/data_batch_3").unlink()
    return "cifar10"


class Harm:
    """A pickle that would run a command when it is loaded."""

    def __reduce__(self) -> Any:
        return os.system, ("touch harm-was-done",)


def malicious_pickle(data_dir: Path) -> str:
    original_files.cifar10_python(data_dir)
    (data_dir / "cifar-10-batches-py/data_batch_1").write_bytes(pickle.dumps({b"data": Harm(), b"labels": []}))
    return "cifar10"


def torn_pickle(data_dir: Path) -> str:
    original_files.cifar10_python(data_dir)
    path = data_dir / "cifar-10-batches-py/data_batch_1"
    path.write_bytes(path.read_bytes()[:-3000])
    return "cifar10"


def escaping_tar(data_dir: Path) -> str:
    with tarfile.open(data_dir / "cifar-10-python.tar.gz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../escaped"))
    return "cifar10"


def escaping_zip(data_dir: Path) -> str:
    with zipfile.ZipFile(data_dir / "tiny-imagenet-200.zip", "w") as archive:
        archive.writestr("../escaped", "x")
    return "tiny-imagenet"


def mat_of_another_shape(data_dir: Path) -> str:
    original_files.svhn(data_dir)
    savemat(data_dir / "train_32x32.mat", {"X": np.zeros((28, 28, 3, 4), np.uint8), "y": np.ones((4, 1))})
    return "svhn"


def mat_that_is_none(data_dir: Path) -> str:
    original_files.svhn(data_dir)
    (data_dir / "train_32x32.mat").write_bytes(b"MATLAB 5.0 MAT-file" + b"\0" * 300)
    return "svhn"


def odd_records(data_dir: Path) -> str:
    original_files.cifar10_binary(data_dir)
    path = data_dir / "cifar-10-batches-bin/data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:-1])
    return "cifar10"


def labels_out_of_range(data_dir: Path) -> str:
    original_files.cifar10_binary(data_dir)
    path = data_dir / "cifar-10-batches-bin/data_batch_2.bin"
    path.write_bytes(b"\xff" + path.read_bytes()[1:])
    return "cifar10"


def torn_stl10(data_dir: Path) -> str:
    original_files.stl10(data_dir)
    path = data_dir / "stl10_binary/unlabeled_X.bin"
    path.write_bytes(path.read_bytes()[:-5])
    return "stl10"


def no_idx(data_dir: Path) -> str:
    original_files.fashion_mnist(data_dir, zipped=False)
    (data_dir / "train-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03" + b"\0" * 12 + b"more")
    return "fashion-mnist"


def no_gzip(data_dir: Path) -> str:
    original_files.fashion_mnist(data_dir)
    (data_dir / "train-labels-idx1-ubyte.gz").write_bytes(b"plain")
    return "fashion-mnist"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (truncated_tar, "is damaged"),
        (truncated_zip, "is damaged"),
        (no_zip, "is damaged"),
        (missing_file, "test_32x32.mat is missing, but train_32x32.mat is there"),
        (missing_batch, "has no data_batch_3"),
        (malicious_pickle, "a pickle asks for posix.system"),
        (torn_pickle, "is not a pickle of plain data"),
        (escaping_tar, "outside of the archive"),
        (escaping_zip, "outside of the archive"),
        (mat_of_another_shape, "X of shape"),
        (mat_that_is_none, "cannot be read"),
        (odd_records, "does not have records of 3073 bytes"),
        (labels_out_of_range, "larger than the number of classes"),
        (torn_stl10, "ends in the middle of an image"),
        (no_idx, "has 4 values"),
        (no_gzip, "cannot be read"),
    ],
)
def test_bad_files_raise_an_error_of_one_line_and_leave_nothing_in_the_cache(
    make: Callable[[Path], str], message: str, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = make(data_dir)
    with pytest.raises(DataError) as error:
        benchmark(name).load(data_dir)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert caches(tmp_path) == []
    assert not (tmp_path / "harm-was-done").exists()
    assert not (tmp_path / "escaped").exists()


def test_a_full_disk_is_an_error_and_leaves_nothing_in_the_cache(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_files.cifar10_python(data_dir)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(DataError, match="No space left on device"):
        benchmark("cifar10").load(data_dir)
    assert caches(tmp_path) == []


def test_the_error_for_a_failed_download_has_the_address_and_the_directory(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    with pytest.raises(DataError) as error:
        benchmark("cifar10").load(data_dir)
    assert "download https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz and put it into" in str(error.value)
    assert str(data_dir) in str(error.value)
    assert not data_dir.exists(), "an empty directory was left behind"


# --- the real files, if available ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "train", "test", "roughest"),
    [
        ("cifar10", (50_000, 32, 32, 3), 10_000, 30),
        ("svhn", (73_257, 32, 32, 3), 26_032, 10),
        ("stl10", (750, 96, 96, 3), 150, 20),
        ("tiny-imagenet", (4000, 64, 64, 3), 1600, 30),
    ],
)
def test_real_files_are_read(name: str, train: tuple[int, ...], test: int, roughest: float) -> None:
    if not os.environ.get("RANKINGMATCH_TEST_DATA"):
        pytest.skip("$RANKINGMATCH_TEST_DATA is not set to a directory with the real files")
    dataset = benchmark(name).load(Path(os.environ["RANKINGMATCH_TEST_DATA"]))
    assert dataset.train.images.shape == train
    assert dataset.test is not None
    assert len(dataset.test) == test
    assert sorted(set(dataset.test.labels)) == list(range(len(dataset.classes)))
    assert smoothness(dataset) < roughest


@pytest.mark.parametrize(
    ("name", "labels", "sizes"), [("cifar10", 250, (44_750, 5000)), ("svhn", 1000, (64_937, 7320))]
)
def test_splits_are_those_of_appendix_d(name: str, labels: int, sizes: tuple[int, int]) -> None:
    if not os.environ.get("RANKINGMATCH_TEST_DATA"):
        pytest.skip("$RANKINGMATCH_TEST_DATA is not set to a directory with the real files")
    dataset = benchmark(name).load(Path(os.environ["RANKINGMATCH_TEST_DATA"]))
    settings = DataSettings(labels=labels, validation=benchmark(name).settings["validation"])
    split = make_split(dataset, settings, seed=0)
    assert (len(split.unlabeled_rows), len(split.validation_rows)) == sizes
    assert np.bincount(split.labels[split.labeled_rows]).tolist() == [labels // 10] * 10


def test_real_fashion_mnist_is_read() -> None:
    if not Path("/usr/share/datasets/fashion-mnist").is_dir():
        pytest.skip("Debian's dataset-fashion-mnist is not installed")
    dataset = benchmark("fashion-mnist").load(None)
    assert dataset.train.images.shape == (60_000, 28, 28, 1)
    split = make_split(dataset, DataSettings(labels=250, validation=5000), seed=0)
    assert (len(split.labeled_rows), len(split.unlabeled_rows), len(split.validation_rows)) == (250, 54_750, 5000)
    assert smoothness(dataset) < 40


def smoothness(dataset: Dataset) -> float:
    """Mean difference of neighboring pixels: small for photographs read in the right order, about 85 for noise."""
    images = dataset.train.images[:200].astype(float)
    return float((np.abs(np.diff(images, axis=1)).mean() + np.abs(np.diff(images, axis=2)).mean()) / 2)
