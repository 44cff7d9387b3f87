"""The training loop: settings, state, batches, and `train`, a generator."""
