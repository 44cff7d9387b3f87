"""Small files in exactly the formats of the benchmarks' originals, written from known images."""

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat


def some_images(count: int, side: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, channels)).astype(np.uint8)


def some_labels(count: int, classes: int = 10, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + 100).integers(0, classes, count)


def _rows(images: np.ndarray) -> np.ndarray:
    """CIFAR's rows: channel by channel."""
    return images.transpose(0, 3, 1, 2).reshape(len(images), -1)


def cifar10_python(data_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    """Five batches of 4 and a test batch; returns the training images and labels."""
    folder = data_dir / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    images, labels = some_images(24, 32), some_labels(24)
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        part = slice(4 * number, 4 * number + 4)
        # The originals were written by Python 2: byte strings as keys, protocol 2.
        batch = {b"batch_label": b"x", b"labels": labels[part].tolist(), b"data": _rows(images[part])}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    names = [f"class {n}".encode() for n in range(10)]
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": names, b"num_vis": 3072}, protocol=2))
    return images[:20], labels[:20]


def cifar10_binary(data_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    folder = data_dir / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    images, labels = some_images(24, 32), some_labels(24)
    records = np.concatenate([labels[:, None].astype(np.uint8), _rows(images)], axis=1)
    for number, name in enumerate([*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"]):
        records[4 * number : 4 * number + 4].tofile(folder / name)
    (folder / "batches.meta.txt").write_text("\n".join(f"class{n}" for n in range(10)) + "\n\n")
    return images[:20], labels[:20]


def cifar100_python(data_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    folder = data_dir / "cifar-100-python"
    folder.mkdir(parents=True)
    images, labels = some_images(16, 32), some_labels(16, 100)
    for name, part in (("train", slice(0, 12)), ("test", slice(12, 16))):
        coarse = (labels[part] // 5).tolist()
        batch = {b"fine_labels": labels[part].tolist(), b"coarse_labels": coarse, b"data": _rows(images[part])}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    names = [f"fine {n}".encode() for n in range(100)]
    (folder / "meta").write_bytes(pickle.dumps({b"fine_label_names": names, b"coarse_label_names": []}, protocol=2))
    return images[:12], labels[:12]


def cifar100_binary(data_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    folder = data_dir / "cifar-100-binary"
    folder.mkdir(parents=True)
    images, labels = some_images(16, 32), some_labels(16, 100)
    columns = [(labels // 5)[:, None].astype(np.uint8), labels[:, None].astype(np.uint8), _rows(images)]
    records = np.concatenate(columns, axis=1)
    records[:12].tofile(folder / "train.bin")
    records[12:].tofile(folder / "test.bin")
    (folder / "fine_label_names.txt").write_text("\n".join(f"fine{n}" for n in range(100)) + "\n")
    return images[:12], labels[:12]


def svhn(data_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    images, labels = some_images(15, 32), some_labels(15)
    for name, part in (("train", slice(0, 10)), ("test", slice(10, 15))):
        y = np.where(labels[part] == 0, 10, labels[part]).astype(np.uint8)[:, None]
        savemat(data_dir / f"{name}_32x32.mat", {"X": images[part].transpose(1, 2, 3, 0), "y": y}, do_compression=True)
    return images[:10], labels[:10]


def stl10(data_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    """20 labeled, 7 test and 9 unlabeled images, ten folds of 5; returns the labeled and then the unlabeled ones."""
    folder = data_dir / "stl10_binary"
    folder.mkdir(parents=True)
    images, labels = some_images(36, 96), some_labels(27)
    for name, part in (("train", slice(0, 20)), ("test", slice(20, 27)), ("unlabeled", slice(27, 36))):
        images[part].transpose(0, 3, 2, 1).tofile(folder / f"{name}_X.bin")
        if name != "unlabeled":
            (labels[part] + 1).astype(np.uint8).tofile(folder / f"{name}_y.bin")
    (folder / "class_names.txt").write_text("\n".join(f"class{n}" for n in range(10)) + "\n")
    folds = [" ".join(str((fold + 4 * n) % 20) for n in range(5)) + " " for fold in range(10)]
    (folder / "fold_indices.txt").write_text("\n".join(folds) + "\n")
    rows = [*range(20), *range(27, 36)]
    return images[rows], np.concatenate([labels[:20], np.full(9, -1)])


def tiny_imagenet(data_dir: Path) -> tuple[int, int]:
    """A zip of 3 classes with 4 training images each, one of them grayscale, and 2 validation images."""
    data_dir.mkdir(parents=True, exist_ok=True)
    folder, wnids = "tiny-imagenet-200", ["n03", "n01", "n02"]
    with zipfile.ZipFile(data_dir / "tiny-imagenet-200.zip", "w") as archive:
        archive.writestr(f"{folder}/wnids.txt", "\n".join(wnids) + "\n")
        archive.writestr(f"{folder}/words.txt", "n01\tcrane, bird\nn02\tcrane, machine\nn03\tbow\nn04\tnot here\n")
        for label, wnid in enumerate(sorted(wnids)):
            archive.writestr(f"{folder}/train/{wnid}/{wnid}_boxes.txt", "")
            for number in range(4):
                name = f"{folder}/train/{wnid}/images/{wnid}_{number}.JPEG"
                archive.writestr(name, jpeg(40 * label + 10 * number, "L" if number == 3 else "RGB"))
        lines = []
        for number, wnid in enumerate(["n02", "n01"]):
            archive.writestr(f"{folder}/val/images/val_{number}.JPEG", jpeg(200 + number, "RGB"))
            lines.append(f"val_{number}.JPEG\t{wnid}\t0\t0\t63\t63")
        archive.writestr(f"{folder}/val/val_annotations.txt", "\n".join(lines) + "\n")
        archive.writestr(f"{folder}/test/images/test_0.JPEG", jpeg(0, "RGB"))
    return 12, 2


def jpeg(value: int, mode: str) -> bytes:
    content = io.BytesIO()
    Image.new(mode, (64, 64), value if mode == "L" else (value, value, value)).save(content, "JPEG", quality=95)
    return content.getvalue()


def fashion_mnist(data_dir: Path, *, zipped: bool = True) -> tuple[np.ndarray, np.ndarray]:
    data_dir.mkdir(parents=True, exist_ok=True)
    images, labels = some_images(15, 28, channels=1), some_labels(15)
    for name, part in (("train", slice(0, 10)), ("t10k", slice(10, 15))):
        count = part.stop - part.start
        pixels = struct.pack(">4I", 0x803, count, 28, 28) + images[part].tobytes()
        answers = struct.pack(">2I", 0x801, count) + labels[part].astype(np.uint8).tobytes()
        for kind, content in (("images-idx3", pixels), ("labels-idx1", answers)):
            path = data_dir / f"{name}-{kind}-ubyte"
            if zipped:
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))
            else:
                path.write_bytes(content)
    return images[:10], labels[:10]


def packed(data_dir: Path, folder: str, archive: str) -> None:
    """Put an unpacked folder back into its tar archive."""
    with tarfile.open(data_dir / archive, "w:gz") as tar:
        tar.add(data_dir / folder, folder)
    for path in (data_dir / folder).iterdir():
        path.unlink()
    (data_dir / folder).rmdir()
