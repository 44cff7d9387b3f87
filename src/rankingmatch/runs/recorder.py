"""What a run records while it is trained: history, costs of steps, TensorBoard events, and the best model so far."""

import importlib.util
from typing import Any

from rankingmatch.core.devices import peak_memory, reset_peak_memory
from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.runs.config import ExecutionSettings
from rankingmatch.runs.directory import Run
from rankingmatch.runs.model import ModelInfo, save_model
from rankingmatch.training.records import Record
from rankingmatch.training.state import State

__all__ = ["Recorder", "require_tensorboard"]


def require_tensorboard() -> None:
    """Raise ConfigError if TensorBoard is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise ConfigError(
            f"{setting('tensorboard')} needs tensorboard; install it: pip install 'rankingmatch[tensorboard]'"
        )


class Recorder:
    """Records each step in the run directory; evaluations are also added to the list `history`."""

    def __init__(
        self, run: Run, state: State, execution: ExecutionSettings, info: ModelInfo, history: list[dict[str, Any]]
    ) -> None:
        self.run, self.state, self.info, self.history = run, state, info, history
        self.measuring = execution.measure_steps
        self.events: Any = None
        self._steps, self._seconds, self._memory = 0, 0.0, 0  # since the last evaluation; the memory is the peak
        if execution.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            # Events of an earlier file after this step are discarded.
            self.events = SummaryWriter(str(run.tensorboard_path), purge_step=state.step + 1 if state.step else None)
        reset_peak_memory(state.device)

    def add(self, record: Record) -> None:
        """Record a step."""
        self._steps += 1
        self._seconds += record.step_seconds
        if self.measuring or record.evaluation:
            memory = peak_memory(self.state.device)
            self._memory = max(self._memory, memory)
            if self.measuring:
                self.run.append_step(record.step, record.step_seconds, memory)
        for name, value in _scalars(record).items() if self.events else ():
            self.events.add_scalar(name, value, record.step)
        if record.evaluation:
            self.history.append(self.run.append(record, self._seconds / self._steps, self._memory))
            self._steps, self._seconds, self._memory = 0, 0.0, 0
            if record.evaluation.best:
                save_model(self.run.best_path, self.state.ema, self.info)

    def reset_memory(self, record: Record) -> None:
        """Start a new measurement of peak memory, after a step whose peak was recorded."""
        if self.measuring or record.evaluation:
            reset_peak_memory(self.state.device)

    def close(self) -> None:
        """Close the event file."""
        if self.events:
            self.events.close()


def _scalars(record: Record) -> dict[str, float]:
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
