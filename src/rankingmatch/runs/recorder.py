"""What a run writes while it is trained."""

from dataclasses import dataclass
from typing import Any

from rankingmatch.core.devices import peak_memory, reset_peak_memory
from rankingmatch.runs.config import ExecutionSettings
from rankingmatch.runs.directory import Run
from rankingmatch.runs.model import ModelInfo, save_model
from rankingmatch.runs.tensorboard import EventWriter
from rankingmatch.training.records import Record
from rankingmatch.training.state import State

__all__ = ["Costs", "Recorder"]


@dataclass
class Costs:
    """The cost of the steps since the last evaluation."""

    steps: int = 0
    seconds: float = 0.0
    memory: int = 0  # peak in bytes, including the evaluation at the end

    def add(self, seconds: float, memory: int) -> None:
        """Count a step."""
        self.steps += 1
        self.seconds += seconds
        self.memory = max(self.memory, memory)


class Recorder:
    """Records a run as it is trained: history, costs of steps, TensorBoard events, and the best model so far.

    Evaluations are also added to the list `history`.
    """

    def __init__(
        self,
        run: Run,
        state: State,
        execution: ExecutionSettings,
        info: ModelInfo,
        history: list[dict[str, Any]],
    ) -> None:
        self.run, self.state, self.info, self.history = run, state, info, history
        self.measuring = execution.measure_steps
        self.costs = Costs()
        self.events = EventWriter(run.tensorboard_path, state.step) if execution.tensorboard else None
        reset_peak_memory(state.device)

    def add(self, record: Record) -> None:
        """Record a step."""
        memory = peak_memory(self.state.device) if self.measuring or record.evaluation else 0
        self.costs.add(record.step_seconds, memory)
        if self.measuring:
            self.run.append_step(record.step, record.step_seconds, memory)
        if self.events:
            self.events.add(record)
        if record.evaluation:
            mean = self.costs.seconds / self.costs.steps
            self.history.append(self.run.append(record, mean, self.costs.memory))
            self.costs = Costs()
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
