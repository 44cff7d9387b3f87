"""From a name or folder to the rows of a step."""

from rankingmatch.data.benchmarks import BENCHMARKS, Benchmark, benchmark
from rankingmatch.data.decode import decoded
from rankingmatch.data.folder import images_below, labeled_files, printable, some
from rankingmatch.data.sampler import places_of_step, rows_of_step
from rankingmatch.data.sources import is_benchmark, source, title, whole_paths
from rankingmatch.data.split import (
    UNLABELED,
    Dataset,
    DataSettings,
    Images,
    Split,
    assemble_split,
    hide_labels,
    make_split,
    rows_to_json,
)

__all__ = [
    "BENCHMARKS",
    "UNLABELED",
    "Benchmark",
    "DataSettings",
    "Dataset",
    "Images",
    "Split",
    "assemble_split",
    "benchmark",
    "decoded",
    "hide_labels",
    "images_below",
    "is_benchmark",
    "labeled_files",
    "make_split",
    "places_of_step",
    "printable",
    "rows_of_step",
    "rows_to_json",
    "some",
    "source",
    "title",
    "whole_paths",
]
