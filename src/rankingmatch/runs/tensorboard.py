"""Training metrics as TensorBoard event files, whose format and version are TensorBoard's own."""

import importlib.util
from pathlib import Path

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.training.records import Record


def require_tensorboard() -> None:
    """Raise ConfigError if TensorBoard is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise ConfigError(
            f"{setting('tensorboard')} needs tensorboard; install it: pip install 'rankingmatch[tensorboard]'"
        )


class EventWriter:
    """Writes an event file into a directory; events of an earlier file after `step` are discarded."""

    def __init__(self, directory: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(directory), purge_step=step + 1 if step else None)

    def add(self, record: Record) -> None:
        """Write the numbers of a record, if it has any."""
        for name, value in scalars(record).items():
            self._writer.add_scalar(name, value, record.step)

    def close(self) -> None:
        """Flush and close the file."""
        self._writer.close()


def scalars(record: Record) -> dict[str, float]:
    """The numbers of a record, by the name that TensorBoard shows."""
    values: dict[str, float | None] = {}
    if record.metrics:
        values |= {f"loss/{name}": value for name, value in record.metrics.losses.items()}
        values |= {
            "training/learning_rate": record.metrics.learning_rate,
            "training/images_per_second": record.metrics.images_per_second,
            "pseudo-labels/confident": record.metrics.confident,
            "pseudo-labels/purity": record.metrics.purity,
        }
        shares = enumerate(record.metrics.class_shares or ())
        values |= {f"pseudo-labels of class/{number}": share for number, share in shares}
    if record.evaluation:
        for part, errors in (("validation", record.evaluation.validation), ("test", record.evaluation.test)):
            if errors is not None:
                values |= {f"error/{part}": errors.error, f"balanced error/{part}": errors.balanced_error}
    return {name: value for name, value in values.items() if value is not None}
