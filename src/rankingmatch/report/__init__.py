"""From what is known of runs to one self-contained page, and to figures for a paper. Knows no torch."""

from rankingmatch.report.assemble import page_content, render_page, runs_in_detail
from rankingmatch.report.subject import Outputs, Status, Subject

__all__ = ["Outputs", "Status", "Subject", "page_content", "render_page", "runs_in_detail"]
