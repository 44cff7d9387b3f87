"""Point operations as lookup tables: (n, c, h, w) uint8 images → (n, c, 256) uint8, one table per channel.

Each table is computed with the arithmetic PIL uses (float32 blends, float64 stretches, integer steps), so
that looking a pixel up gives PIL's result bit for bit.
"""

import torch
from torch import Tensor


def look_up(images: Tensor, tables: Tensor) -> Tensor:
    """Replace each pixel by its entry in its image's and channel's table."""
    return tables.gather(2, images.flatten(2).long()).view(images.shape)


def gray(images: Tensor) -> Tensor:
    """(n, h, w) int32 brightness: ITU-R 601 luma for three channels as in PIL, else the rounded mean."""
    channels = images.shape[1]
    if channels == 1:
        return images[:, 0].int()
    if channels == 3:
        red, green, blue = images.int().unbind(1)
        weighted = red.mul_(19595).add_(green, alpha=38470).add_(blue, alpha=7471).add_(0x8000)
        return weighted.bitwise_right_shift_(16)
    return (2 * images.sum(1, dtype=torch.int32) + channels) // (2 * channels)


def blend(degenerate: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    """PIL's Image.blend: degenerate + factor · (images - degenerate) in float32, cut to uint8.

    `factor` is (n,) and applies along the first dimension.
    """
    factor = factor.float().to(images.device).view(-1, *[1] * (images.ndim - 1))
    return (images.float() - degenerate).mul_(factor).add_(degenerate).clamp_(0, 255).byte()


def autocontrast(images: Tensor, _: Tensor) -> Tensor:
    """Stretch each channel so that its darkest value becomes 0 and its lightest 255."""
    # PIL's float64 on the CPU: not every device has it, and these are two numbers per channel.
    low = images.flatten(2).amin(2, keepdim=True).cpu().double()
    high = images.flatten(2).amax(2, keepdim=True).cpu().double()
    levels = torch.arange(256, dtype=torch.float64)
    # A true division: torch computes `255.0 / tensor` as a product with the reciprocal, off by an ulp.
    scale = torch.full_like(low, 255.0) / (high - low).clamp(min=1)
    stretched = (levels * scale + (-low * scale)).clamp(0, 255)
    return torch.where(high > low, stretched, levels).byte().to(images.device)


def equalize(images: Tensor, _: Tensor) -> Tensor:
    """Map each channel so that its values are spread evenly."""
    n, c = images.shape[:2]
    pixels = images.flatten(2).long()
    channel = torch.arange(n * c, device=images.device).view(n, c, 1)
    histogram = (pixels + 256 * channel).flatten().bincount(minlength=n * c * 256).view(n, c, 256)
    last = histogram.gather(2, pixels.amax(2, keepdim=True))  # how many pixels have the lightest value
    step = (histogram.sum(2, keepdim=True) - last) // 255
    below = histogram.cumsum(2) - histogram
    spread = (step // 2 + below) // step.clamp(min=1)
    return torch.where(step > 0, spread.clamp(max=255), _levels(images)).byte()


def autocontrast_by(images: Tensor, share: Tensor) -> Tensor:
    """Blend with the stretched image: 0 is the image, 1 stretched."""
    return blend(_levels(images).expand(*images.shape[:2], 256), autocontrast(images, share), share)


def equalize_by(images: Tensor, share: Tensor) -> Tensor:
    """Blend with the evenly spread image: 0 is the image, 1 spread."""
    return blend(_levels(images).expand(*images.shape[:2], 256), equalize(images, share), share)


def invert_by(images: Tensor, share: Tensor) -> Tensor:
    """Blend with the negative: 0 is the image, 1 the negative."""
    levels = _levels(images).expand(*images.shape[:2], 256)
    return blend(levels, 255 - levels, share)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with black: 0 is black, 1 the image."""
    levels = _levels(images).expand(*images.shape[:2], 256)
    return blend(torch.zeros_like(levels), levels, factor)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the image's mean grey: 0 is grey, 1 the image."""
    levels = _levels(images).expand(*images.shape[:2], 256)
    total = gray(images).flatten(1).sum(1)
    pixels = images.shape[2] * images.shape[3]
    mean = (2 * total + pixels) // (2 * pixels)
    return blend(mean.view(-1, 1, 1).expand_as(levels), levels, factor)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the upper bits (1 to 8; the fraction is dropped) of each value."""
    dropped = 8 - bits.long().clamp(1, 8).to(images.device).view(-1, 1, 1)
    return ((_levels(images) >> dropped) << dropped).byte().expand(*images.shape[:2], 256)


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert values from the threshold on; the threshold is a share of the range, 0 to 1."""
    levels = _levels(images)
    cut = (threshold * 255.999).long().to(images.device).view(-1, 1, 1)
    return torch.where(levels < cut, levels, 255 - levels).byte().expand(*images.shape[:2], 256)


def _levels(images: Tensor) -> Tensor:
    return torch.arange(256, device=images.device).view(1, 1, 256)
