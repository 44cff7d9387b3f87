"""In the place of timm: one convolutional network with its interface, and "pretrained" weights that are all 0.01."""

from typing import Any

from torch import Tensor, nn


class FakeModel(nn.Module):
    def __init__(self, num_classes: int, in_chans: int) -> None:
        super().__init__()
        self.num_features = 6
        self.pretrained_cfg: dict[str, Any] = {
            "input_size": (3, 12, 12),
            "mean": (0.5, 0.4, 0.3),
            "std": (0.2, 0.3, 0.1),
            "classifier": "fc",
        }
        self.stem = nn.Conv2d(in_chans, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, num_classes)

    def forward_features(self, images: Tensor) -> Tensor:
        return self.norm(self.stem(images)).relu()  # type: ignore[no-any-return]

    def forward_head(self, maps: Tensor, pre_logits: bool = False) -> Tensor:
        pooled = maps.mean((2, 3))
        return pooled if pre_logits else self.fc(pooled)

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))


def create_model(name: str, pretrained: bool = False, num_classes: int = 1000, in_chans: int = 3) -> nn.Module:
    if name != "fakenet":
        raise RuntimeError(f"Unknown model ({name})")
    model = FakeModel(num_classes, in_chans)
    if pretrained:
        nn.init.constant_(model.stem.weight, 0.01)
        assert model.norm.running_mean is not None
        model.norm.running_mean.fill_(0.25)
    return model


def own_factory(channels: int, classes: int, pretrained: bool = False) -> nn.Module:
    """A user's factory of a network with timm's interface."""
    return create_model("fakenet", pretrained, classes, channels)
