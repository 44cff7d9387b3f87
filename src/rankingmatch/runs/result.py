"""What the files of a run say of its training: the result, and a line for each evaluation.

The errors of a part stand on one level there, by names such as `val_error` and `test_recall`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, get_type_hints

from rankingmatch.core.metrics import Errors, Percent
from rankingmatch.core.untrusted import FORMATS, BadFileError, Between, Size, check_value, typed
from rankingmatch.training.records import Record

Seconds = Annotated[float, Between(0, 1e12)]
_HINTS = get_type_hints(Errors, include_extras=True)
ERRORS = {f"{part}_{name}": hint | None for part in ("val", "test") for name, hint in _HINTS.items()}
# What a line of metrics.jsonl may have; everything else in it is a number, a truth value, or a list of numbers.
LINE = {"step": Size, "seconds": Seconds, "best": bool | None, "class_shares": list[float] | None, **ERRORS}


def _figure(part: str, name: str) -> Any:
    """An attribute of a result that is a field of the errors of one of its parts."""
    return property(lambda self: getattr(getattr(self, part), name, None))


@dataclass(frozen=True)
class Result:
    """The outcome of a finished run; errors are in percent and of the EMA weights.

    Attributes
    ----------
    dataset, method, labels, seed
        What was trained: names, the number of labels, and the random seed.
    steps, seconds
        How long it took.
    test, val
        The errors at the last step; None without such images. Each of them is an attribute, too: `test_error` and
        `val_error`; `test_balanced_error` and `val_balanced_error`, the mean over the classes of their errors;
        `test_recall` and `val_recall`, the recall of each class, None for one without images.
    best_step, best_val_error, best_test_error
        The step with the lowest validation error, and the errors there.
    diverged_at, diverged_part
        The step at which a loss became non-finite, and which one; None if training did not diverge.
    """

    dataset: str
    method: str
    labels: Size
    seed: int
    steps: Size
    seconds: Seconds
    test: Errors | None = None
    val: Errors | None = None
    best_step: Size | None = None
    best_val_error: Percent | None = None
    best_test_error: Percent | None = None
    diverged_at: Size | None = None
    diverged_part: str | None = None

    test_error = _figure("test", "error")
    val_error = _figure("val", "error")
    test_balanced_error = _figure("test", "balanced_error")
    val_balanced_error = _figure("val", "balanced_error")
    test_recall = _figure("test", "recall")
    val_recall = _figure("val", "recall")

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the format number."""
        values = {name: value for name, value in vars(self).items() if name not in ("test", "val")}
        return {"format": FORMATS["result"], **values, **errors_to_json(self.val, self.test)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Result":
        """The inverse of `to_json`; raises BadFileError for a value that is not what it should be."""
        others = {name: value for name, value in values.items() if name not in {"format", *ERRORS}}
        return replace(typed(cls, others), **errors_from_json(values))


def errors_to_json(val: Errors | None, test: Errors | None) -> dict[str, Any]:
    """The errors of both parts on one level."""
    return {
        f"{part}_{field.name}": getattr(errors, field.name, None)
        for part, errors in (("val", val), ("test", test))
        for field in fields(Errors)
    }


def errors_from_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """The errors of the parts "val" and "test", checked; None without such images."""
    found = {name: check_value(name, values.get(name), hint) for name, hint in ERRORS.items()}
    parts = {part: {name: found[f"{part}_{name}"] for name in _HINTS} for part in ("val", "test")}
    return {part: None if errors["error"] is None else Errors(**errors) for part, errors in parts.items()}


def record_to_json(record: Record) -> dict[str, Any]:
    """A record on one level: a line of metrics.jsonl."""
    values: dict[str, Any] = {"step": record.step, "seconds": round(record.seconds, 3)}
    if record.metrics:
        values |= {key: value for key, value in asdict(record.metrics).items() if key != "losses"}
        values |= {f"loss_{name}": value for name, value in record.metrics.losses.items()}
    if record.evaluation:
        found = record.evaluation
        values |= {"best": found.best, **errors_to_json(found.validation, found.test)}
    return values


def check_line(line: Mapping[str, Any]) -> None:
    """Raise BadFileError unless a line of metrics.jsonl has the values of an evaluation."""
    if "step" not in line:
        raise BadFileError("a line is not an evaluation: it has no step")
    for name, value in line.items():
        if name in LINE:
            check_value(name, value, LINE[name])
        elif isinstance(value, list):
            check_value(name, value, list[float])
        elif not isinstance(value, bool):
            check_value(name[:50], value, float | None)
