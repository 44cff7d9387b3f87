"""Readers of original files: small files in exactly the original formats, and the real files if they are available."""

import gzip
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
from rankingmatch.data import DataSettings, benchmark, make_split, no_progress
from rankingmatch.data.benchmarks import FASHION_MNIST
from rankingmatch.data.cache import load_cached, resize_images

Write = Callable[[Path], Any]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "files"
    directory.mkdir()
    return directory


@pytest.mark.parametrize(
    ("name", "write", "archive", "test_count"),
    [
        ("cifar10", original_files.cifar10_python, "cifar-10-batches-py → cifar-10-python.tar.gz", 4),
        ("cifar10", original_files.cifar10_binary, "cifar-10-batches-bin → cifar-10-binary.tar.gz", 4),
        ("cifar100", original_files.cifar100_python, "cifar-100-python → cifar-100-python.tar.gz", 4),
        ("cifar100", original_files.cifar100_binary, "cifar-100-binary → cifar-100-binary.tar.gz", 4),
        ("svhn", original_files.svhn, "", 5),
        ("stl10", original_files.stl10, "stl10_binary → stl10_binary.tar.gz", 7),
        ("fashion-mnist", original_files.fashion_mnist, "", 5),
        ("fashion-mnist", lambda place: original_files.fashion_mnist(place, zipped=False), "", 5),
    ],
)
def test_images_and_labels_come_back_as_they_were_written(
    name: str, write: Write, archive: str, test_count: int, data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images, labels = write(data_dir)
    for packed in (False, False, True):  # decoded, then from the cache, then from an archive that is not unpacked
        if packed and archive:
            original_files.packed(data_dir, *archive.split(" → "))
        dataset = benchmark(name).load(data_dir)
        assert dataset.train.images.dtype == np.uint8
        assert np.array_equal(dataset.train.images, images)
        assert np.array_equal(dataset.train.labels, labels)
        assert dataset.test is not None
        assert len(dataset.test) == test_count
        assert len(dataset.classes) == (100 if name == "cifar100" else 10)
    if archive:
        assert [path.name for path in data_dir.iterdir()] == [archive.split(" → ")[1]]
        assert "is not the original file" in caplog.text


def test_stl10_has_its_folds_and_its_unlabeled_images_and_may_be_resized(data_dir: Path) -> None:
    original_files.stl10(data_dir)
    whole, small = benchmark("stl10").load(data_dir), benchmark("stl10").load(data_dir, 24)
    assert [len(fold) for fold in whole.folds] == [5] * 10
    split = make_split(whole, DataSettings(), seed=1)
    assert split.labeled_rows.tolist() == sorted((1 + 4 * n) % 20 for n in range(5))
    assert len(split.validation_rows) == 15
    assert split.unlabeled_rows.tolist() == list(range(20, 29))
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
    expected = [40 * label + 10 * number for label in range(3) for number in range(4)]
    assert np.abs(dataset.train.images.reshape(12, -1).mean(1) - expected).max() < 2
    assert dataset.test is not None
    assert dataset.test.labels.tolist() == [1, 0]


def test_files_are_also_found_where_the_system_installed_them_by_name_and_by_environment_variable(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "installed"
    images, _ = original_files.fashion_mnist(place)
    there: Any = {"name": "fashion-mnist", "distributions": (FASHION_MNIST,), "other_directories": (place,)}
    assert np.array_equal(load_cached(data_dir, None, no_progress, **there).train.images, images)
    original_files.cifar10_python(data_dir / "cifar10")
    monkeypatch.setenv("RANKINGMATCH_DATA", str(data_dir))
    assert len(benchmark("cifar10").load(None).train) == 20


def test_the_cache_follows_the_files(data_dir: Path, own_cache: Path) -> None:
    original_files.cifar10_binary(data_dir)
    for changed in (1, 1, 2):
        os.utime(data_dir / "cifar-10-batches-bin/data_batch_1.bin", ns=(changed, changed))
        benchmark("cifar10").load(data_dir)
    assert len(list(own_cache.iterdir())) == 2


# --- bad input -----------------------------------------------------------------------------------------------


class Harm:
    """A pickle that would run a command when it is loaded."""

    def __reduce__(self) -> Any:
        return os.system, ("touch harm-was-done",)


def cifar_archive(place: Path) -> None:
    original_files.cifar10_python(place)
    original_files.packed(place, "cifar-10-batches-py", "cifar-10-python.tar.gz")


def escaping_tar(place: Path) -> None:
    with tarfile.open(place / "cifar-10-python.tar.gz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../escaped"))


def escaping_zip(place: Path) -> None:
    with zipfile.ZipFile(place / "tiny-imagenet-200.zip", "w") as archive:
        archive.writestr("../escaped", "x")


def other_shape(place: Path) -> None:
    original_files.svhn(place)
    savemat(place / "train_32x32.mat", {"X": np.zeros((28, 28, 3, 4), np.uint8), "y": np.ones((4, 1))})


PICKLE, HARM = "cifar-10-batches-py/data_batch_1", pickle.dumps({b"data": Harm(), b"labels": []})
RECORDS, TAR, ZIP = "cifar-10-batches-bin/data_batch_2.bin", "cifar-10-python.tar.gz", "tiny-imagenet-200.zip"
MAT, STL10, IDX = "train_32x32.mat", "stl10_binary/unlabeled_X.bin", "train-images-idx3-ubyte.gz"
# The dataset, what writes its files, a file and its damage (None deletes it), and what the error names.
BAD: dict[str, tuple[str, Write, str, Callable[[bytes], bytes | None], str]] = {
    "truncated tar": ("cifar10", cifar_archive, TAR, lambda c: c[:20_000], "damaged"),
    "truncated zip": ("tiny-imagenet", original_files.tiny_imagenet, ZIP, lambda c: c[:5000], "damaged"),
    "no zip": ("tiny-imagenet", original_files.tiny_imagenet, ZIP, lambda c: b"<html>not found</html>", "damaged"),
    "missing file": ("svhn", original_files.svhn, "test_32x32.mat", lambda c: None, "test_32x32.mat is missing"),
    "missing batch": ("cifar10", original_files.cifar10_python, PICKLE, lambda c: None, "has no data_batch_1"),
    "malicious pickle": ("cifar10", original_files.cifar10_python, PICKLE, lambda c: HARM, "asks for posix.system"),
    "torn pickle": ("cifar10", original_files.cifar10_python, PICKLE, lambda c: c[:-3000], "data_batch_1"),
    "escaping tar": ("cifar10", escaping_tar, TAR, bytes, "outside of the archive"),
    "escaping zip": ("tiny-imagenet", escaping_zip, ZIP, bytes, "outside of the archive"),
    "other shape": ("svhn", other_shape, MAT, bytes, "X of shape"),
    "no mat": ("svhn", original_files.svhn, MAT, lambda c: b"MATLAB 5.0 MAT-file" + bytes(300), MAT),
    "odd records": ("cifar10", original_files.cifar10_binary, RECORDS, lambda c: c[:-1], "records of 3073 bytes"),
    "large label": ("cifar10", original_files.cifar10_binary, RECORDS, lambda c: b"\xff" + c[1:], "a label is larger"),
    "torn binary": ("stl10", original_files.stl10, STL10, lambda c: c[:-5], "unlabeled_X.bin"),
    "no idx": ("fashion-mnist", original_files.fashion_mnist, IDX, lambda c: gzip.compress(bytes(40)), "train-images"),
    "short idx": ("fashion-mnist", original_files.fashion_mnist, IDX, lambda c: c[:100], "train-images"),
    "no gzip": ("fashion-mnist", original_files.fashion_mnist, IDX, lambda c: b"plain", "train-images"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_raise_an_error_of_one_line_and_leave_nothing_in_the_cache(
    case: str, data_dir: Path, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, write, file, damage, problem = BAD[case]
    write(data_dir)
    content = damage((data_dir / file).read_bytes())
    if content is None:
        (data_dir / file).unlink()
    else:
        (data_dir / file).write_bytes(content)
    with pytest.raises(DataError, match=problem) as error:
        benchmark(name).load(data_dir)
    assert "\n" not in str(error.value)
    assert list(own_cache.glob("*")) == []
    assert not (tmp_path / "harm-was-done").exists()
    assert not (tmp_path / "escaped").exists()


def test_the_error_for_a_failed_download_has_the_address_and_the_directory(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    with pytest.raises(DataError, match=rf"https://.*/cifar-10-python.tar.gz and put it into {data_dir}"):
        benchmark("cifar10").load(data_dir)
    assert not data_dir.exists(), "an empty directory was left behind"


# --- real images ---------------------------------------------------------------------------------------------


def test_digits_have_a_fixed_test_set() -> None:
    first, again = benchmark("digits").load(None), benchmark("digits").load(None)
    assert first.test is not None
    assert again.test is not None
    assert (len(first.train), len(first.test), first.train.images.max()) == (1437, 360, 255)
    assert (first.test.images == again.test.images).all()
    assert not {image.tobytes() for image in first.train.images} & {image.tobytes() for image in first.test.images}


@pytest.mark.parametrize(
    ("name", "train", "test", "labels", "unlabeled", "roughest"),
    [
        ("cifar10", (50_000, 32, 32, 3), 10_000, 250, 44_750, 30),
        ("svhn", (73_257, 32, 32, 3), 26_032, 1000, 64_937, 10),
        ("stl10", (750, 96, 96, 3), 150, None, None, 20),
        ("tiny-imagenet", (4000, 64, 64, 3), 1600, None, None, 30),
        ("fashion-mnist", (60_000, 28, 28, 1), 10_000, 250, 54_750, 40),
    ],
)
def test_real_files_are_read_and_split_as_in_appendix_d(
    name: str, train: tuple[int, ...], test: int, labels: int | None, unlabeled: int | None, roughest: float
) -> None:
    place = "/usr/share/datasets" if name == "fashion-mnist" else os.environ.get("RANKINGMATCH_TEST_DATA", "none")
    if not Path(place).is_dir():
        pytest.skip("$RANKINGMATCH_TEST_DATA is not set to a directory with the real files, or Debian's are missing")
    dataset = benchmark(name).load(Path(place))
    assert dataset.train.images.shape == train
    assert dataset.test is not None
    assert len(dataset.test) == test
    assert sorted(set(dataset.test.labels)) == list(range(len(dataset.classes)))
    pixels = dataset.train.images[:200].astype(float)
    # Neighboring pixels of photographs that are read in the right order differ little; those of noise, by 85.
    assert np.mean([np.abs(np.diff(pixels, axis=axis)).mean() for axis in (1, 2)]) < roughest
    if labels is not None:
        validation = benchmark(name).settings["validation"]
        split = make_split(dataset, DataSettings(labels=labels, validation=validation), seed=0)
        assert (len(split.unlabeled_rows), len(split.validation_rows)) == (unlabeled, validation)
        assert np.bincount(split.labels[split.labeled_rows]).tolist() == [labels // 10] * 10


def test_a_resized_pixel_is_the_mean_of_the_area_it_covers_and_larger_images_are_interpolated() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 2)).astype(np.uint8)
    means = images.astype(float).reshape(3, 4, 2, 4, 2, 2).mean((2, 4))
    assert np.abs(resize_images(images, 4) - means).max() <= 0.5
    ramp = np.broadcast_to(np.arange(0, 160, 10, dtype=np.uint8)[None, None, :, None], (1, 16, 16, 3))
    large = resize_images(ramp, 64)
    assert large.shape == (1, 64, 64, 3)
    assert np.diff(large[0, 32, 8:-8, 0].astype(int)).max() <= 4  # blocks of equal pixels would jump by 10
