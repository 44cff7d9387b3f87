"""Small files in exactly the formats of the benchmarks' originals; writers return the training images and labels."""

import gzip
import io
import pickle
import shutil
import struct
import tarfile
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

Written = tuple[np.ndarray, np.ndarray]


def _some(count: int, side: int, channels: int = 3, classes: int = 10) -> Written:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, side, side, channels)).astype(np.uint8), rng.integers(0, classes, count)


def _cifar(folder: str, classes: int, data_dir: Path) -> Written:
    """Batches of 4 images, or one of 12 for training, whose pixels are stored channel by channel."""
    place, ten, binary = data_dir / folder, classes == 10, folder.endswith(("bin", "binary"))
    place.mkdir(parents=True)
    names = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"] if ten else ["train", "test"]
    images, labels = _some(24 if ten else 16, 32, classes=classes)
    ends = [4, 8, 12, 16, 20, 24] if ten else [12, 16]
    rows, kind = images.transpose(0, 3, 1, 2).reshape(len(images), -1), "label" if ten else "fine_label"
    for name, start, end in zip(names, [0, *ends], ends, strict=False):
        known, pixels = labels[start:end], rows[start:end]
        if binary:
            columns = [known // 5] * (not ten) + [known]
            np.column_stack([column.astype(np.uint8) for column in columns] + [pixels]).tofile(place / f"{name}.bin")
        else:  # The originals were written by Python 2: byte strings as keys, protocol 2.
            batch = {f"{kind}s".encode(): known.tolist(), b"batch_label": b"x", b"data": pixels}
            (place / name).write_bytes(pickle.dumps(batch, protocol=2))
    called = [f"class{n}" for n in range(classes)]
    if binary:
        (place / ("batches.meta.txt" if ten else "fine_label_names.txt")).write_text("\n".join(called) + "\n\n")
    else:
        meta = {f"{kind}_names".encode(): [name.encode() for name in called], b"num_vis": 3072}
        (place / ("batches.meta" if ten else "meta")).write_bytes(pickle.dumps(meta, protocol=2))
    return images[:-4], labels[:-4]


cifar10_python, cifar10_binary = partial(_cifar, "cifar-10-batches-py", 10), partial(_cifar, "cifar-10-batches-bin", 10)
cifar100_python, cifar100_binary = partial(_cifar, "cifar-100-python", 100), partial(_cifar, "cifar-100-binary", 100)


def svhn(data_dir: Path) -> Written:
    images, labels = _some(15, 32)
    for name, part in (("train", slice(0, 10)), ("test", slice(10, 15))):
        y = np.where(labels[part] == 0, 10, labels[part]).astype(np.uint8)[:, None]
        savemat(data_dir / f"{name}_32x32.mat", {"X": images[part].transpose(1, 2, 3, 0), "y": y}, do_compression=True)
    return images[:10], labels[:10]


def stl10(data_dir: Path) -> Written:
    """20 labeled, 7 test and 9 unlabeled images, ten folds of 5."""
    folder = data_dir / "stl10_binary"
    folder.mkdir(parents=True)
    images, labels = _some(36, 96)
    for name, part in (("train", slice(0, 20)), ("test", slice(20, 27)), ("unlabeled", slice(27, 36))):
        images[part].transpose(0, 3, 2, 1).tofile(folder / f"{name}_X.bin")
        if name != "unlabeled":
            (labels[part] + 1).astype(np.uint8).tofile(folder / f"{name}_y.bin")
    (folder / "class_names.txt").write_text("\n".join(f"class{n}" for n in range(10)) + "\n")
    folds = [" ".join(str((fold + 4 * n) % 20) for n in range(5)) + " " for fold in range(10)]
    (folder / "fold_indices.txt").write_text("\n".join(folds) + "\n")
    return images[[*range(20), *range(27, 36)]], np.concatenate([labels[:20], np.full(9, -1)])


def tiny_imagenet(data_dir: Path) -> None:
    """A zip of 3 classes with 4 training images each, one of them grayscale, and 2 validation images."""
    data_dir.mkdir(parents=True, exist_ok=True)

    def jpeg(value: int, mode: str = "RGB") -> bytes:
        content = io.BytesIO()
        Image.new(mode, (64, 64), value if mode == "L" else (value, value, value)).save(content, "JPEG", quality=95)
        return content.getvalue()

    files: dict[str, str | bytes] = {
        "wnids.txt": "n03\nn01\nn02\n",
        "words.txt": "n01\tcrane, bird\nn02\tcrane, machine\nn03\tbow\nn04\tnot here\n",
        "val/images/val_0.JPEG": jpeg(200),
        "val/images/val_1.JPEG": jpeg(201),
        "val/val_annotations.txt": "val_0.JPEG\tn02\t0\t0\t63\t63\nval_1.JPEG\tn01\t0\t0\t63\t63\n",
        "test/images/test_0.JPEG": jpeg(0),
    }
    for label, wnid in enumerate(("n01", "n02", "n03")):
        files[f"train/{wnid}/{wnid}_boxes.txt"] = ""
        for number in range(4):
            value = 40 * label + 10 * number
            files[f"train/{wnid}/images/{wnid}_{number}.JPEG"] = jpeg(value, "L" if number == 3 else "RGB")
    with zipfile.ZipFile(data_dir / "tiny-imagenet-200.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(f"tiny-imagenet-200/{name}", content)


def fashion_mnist(data_dir: Path, *, zipped: bool = True) -> Written:
    data_dir.mkdir(parents=True, exist_ok=True)
    images, labels = _some(15, 28, channels=1)
    for name, part, count in (("train", slice(0, 10), 10), ("t10k", slice(10, 15), 5)):
        pixels = struct.pack(">4I", 0x803, count, 28, 28) + images[part].tobytes()
        answers = struct.pack(">2I", 0x801, count) + labels[part].astype(np.uint8).tobytes()
        for kind, content in (("images-idx3", pixels), ("labels-idx1", answers)):
            path = data_dir / f"{name}-{kind}-ubyte{'.gz' if zipped else ''}"
            path.write_bytes(gzip.compress(content) if zipped else content)
    return images[:10], labels[:10]


def packed(data_dir: Path, folder: str, archive: str) -> None:
    """Put an unpacked folder back into its tar archive."""
    with tarfile.open(data_dir / archive, "w:gz") as tar:
        tar.add(data_dir / folder, folder)
    shutil.rmtree(data_dir / folder)
