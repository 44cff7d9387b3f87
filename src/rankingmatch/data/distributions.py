"""Where the original files of each dataset are downloaded from, their checksums, and how they are read."""

from functools import partial

from rankingmatch.data import readers
from rankingmatch.data.files import Distribution, RemoteFile

__all__ = ["CIFAR10", "CIFAR100", "FASHION_MNIST", "STL10", "SVHN", "TINY_IMAGENET"]

_TORONTO = "https://www.cs.toronto.edu/~kriz"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

CIFAR10 = (
    Distribution(
        (RemoteFile(f"{_TORONTO}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),),
        partial(
            readers.read_cifar_python,
            folder="cifar-10-batches-py",
            train=_BATCHES,
            test="test_batch",
            meta="batches.meta",
            keys=(b"labels", b"label_names"),
        ),
        "cifar-10-batches-py",
    ),
    Distribution(
        (RemoteFile(f"{_TORONTO}/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
        partial(
            readers.read_cifar_binary,
            folder="cifar-10-batches-bin",
            train=tuple(f"{name}.bin" for name in _BATCHES),
            test="test_batch.bin",
            meta="batches.meta.txt",
            label_bytes=1,
        ),
        "cifar-10-batches-bin",
    ),
)
CIFAR100 = (
    Distribution(
        (RemoteFile(f"{_TORONTO}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),),
        partial(
            readers.read_cifar_python,
            folder="cifar-100-python",
            train=("train",),
            test="test",
            meta="meta",
            keys=(b"fine_labels", b"fine_label_names"),
        ),
        "cifar-100-python",
    ),
    Distribution(
        (RemoteFile(f"{_TORONTO}/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),),
        partial(
            readers.read_cifar_binary,
            folder="cifar-100-binary",
            train=("train.bin",),
            test="test.bin",
            meta="fine_label_names.txt",
            label_bytes=2,
        ),
        "cifar-100-binary",
    ),
)
SVHN = (
    Distribution(
        (
            RemoteFile("http://ufldl.stanford.edu/housenumbers/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
            RemoteFile("http://ufldl.stanford.edu/housenumbers/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
        ),
        readers.read_svhn,
    ),
)
STL10 = (
    Distribution(
        (RemoteFile("http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz", "91f7769df0f17e558f3565bffb0c7dfb"),),
        readers.read_stl10,
        "stl10_binary",
    ),
)
TINY_IMAGENET = (
    Distribution(
        (RemoteFile("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"),),
        readers.read_tiny_imagenet,
        "tiny-imagenet-200",
    ),
)
FASHION_CLASSES = (
    *("t-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
FASHION_MNIST = (
    Distribution(
        (
            RemoteFile(f"{_FASHION}/train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            RemoteFile(f"{_FASHION}/train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
            RemoteFile(f"{_FASHION}/t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
            RemoteFile(f"{_FASHION}/t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
        partial(readers.read_idx, classes=FASHION_CLASSES),
    ),
)
