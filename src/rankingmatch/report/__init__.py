"""Self-contained HTML reports of runs, and figures for a paper. Takes plain arrays; does not import torch."""

from rankingmatch.report.page import PageContent, page_content, render_page, runs_in_detail
from rankingmatch.report.run_data import Predictions, RunData, Status
from rankingmatch.report.section import ReportInput, Section

__all__ = [
    "PageContent",
    "Predictions",
    "ReportInput",
    "RunData",
    "Section",
    "Status",
    "page_content",
    "render_page",
    "runs_in_detail",
]
