"""Training: losses, errors, pseudo-labels, learning rate, time and memory over the steps."""

from typing import TypedDict

from rankingmatch.report.curves import PanelData, class_share_panels, comparison_panels, training_panels
from rankingmatch.report.section import ReportInput, Section


class TrainingData(TypedDict):
    """What training.js draws."""

    panels: list[PanelData]


def training_data(report: ReportInput) -> TrainingData:
    """The curves of one run, or the curves of several runs in the same plots."""
    if len(report.runs) == 1:
        panels = training_panels(report.runs[0])
    else:
        detailed = [run for _, run in report.detailed_runs()]
        panels = [*comparison_panels(report.runs), *class_share_panels(detailed)]
    return {"panels": [panel.to_data() for panel in panels]}


SECTION = Section("training", "Training", training_data)
