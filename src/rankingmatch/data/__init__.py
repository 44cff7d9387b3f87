"""Images and labels: from a dataset's name, a folder or shards to the rows of a training step."""

from rankingmatch.core.names import first_few, printable
from rankingmatch.data.benchmarks import BENCHMARKS, Benchmark, benchmark
from rankingmatch.data.dataset import UNLABELED, Dataset, Images, Progress, Source, Split, no_progress, under_way
from rankingmatch.data.decode import ImageFile, UnreadableError, decode_files
from rankingmatch.data.folder_contents import images_below, labeled_files
from rankingmatch.data.image_folder import ImageFolder, dataset_title, find_source, is_place, suggested_settings
from rankingmatch.data.sampler import indices_of_step, rows_of_step
from rankingmatch.data.split import DataSettings, assemble_split, make_split, rows_to_json

__all__ = [
    "BENCHMARKS",
    "UNLABELED",
    "Benchmark",
    "DataSettings",
    "Dataset",
    "ImageFile",
    "ImageFolder",
    "Images",
    "Progress",
    "Source",
    "Split",
    "UnreadableError",
    "assemble_split",
    "benchmark",
    "dataset_title",
    "decode_files",
    "find_source",
    "first_few",
    "images_below",
    "indices_of_step",
    "is_place",
    "labeled_files",
    "make_split",
    "no_progress",
    "printable",
    "rows_of_step",
    "rows_to_json",
    "suggested_settings",
    "under_way",
]
