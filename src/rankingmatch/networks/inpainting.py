"""A generator that fills holes in images from what is around them."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.networks.batchnorm import batch_norm_of_training

__all__ = ["InpaintingGenerator"]

HALVINGS = 3  # of the resolution


class InpaintingGenerator(nn.Module):
    """Strided convolutions, then transposed ones: images with holes → whole images.

    Parameters
    ----------
    channels : int
        The number of image channels.
    width : int
        The number of filters at full resolution; it doubles with every halving.
    """

    def __init__(self, channels: int, width: int = 32) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(HALVINGS + 1)]
        self.stem = nn.Conv2d(channels + 1, width, 3, padding=1, bias=False)
        self.down = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False) for a, b in pairwise(widths))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 3, stride=2, padding=1, bias=False) for a, b in reversed(list(pairwise(widths)))
        )
        self.norms = nn.ModuleList(batch_norm_of_training(size) for size in [*widths, *reversed(widths[:-1])])
        self.pixels = nn.Conv2d(width, channels, 3, padding=1)
        for layer in (self.stem, *self.down, *self.up):
            assert isinstance(layer.weight, Tensor)
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, images: Tensor, kept: Tensor) -> Tensor:
        """Generate images.

        Parameters
        ----------
        images : Tensor
            Images (n, c, h, w) with values 0 to 255.
        kept : Tensor
            Booleans (n, 1, h, w): False in the hole, which the generator does not see.

        Returns
        -------
        Tensor
            Images (n, c, h, w) with values 0 to 255, also outside of the hole.
        """
        norms = iter(self.norms)
        seen = torch.where(kept, images / 127.5 - 1, 0)
        maps = _activate(next(norms)(self.stem(torch.cat([seen, kept.to(seen.dtype)], 1))))
        sizes = []
        for layer in self.down:
            sizes.append(maps.shape[2:])
            maps = _activate(next(norms)(layer(maps)))
        for layer in self.up:
            maps = _activate(next(norms)(layer(maps, output_size=sizes.pop())))
        pixels: Tensor = self.pixels(maps)
        return 255 * pixels.float().sigmoid()


def _activate(maps: Tensor) -> Tensor:
    return F.leaky_relu(maps, 0.1)
