"""Train an image classifier from a few labeled and many unlabeled images."""

__version__ = "0.1.0"
