"""Images and labels: from a dataset's name, a folder or shards to the rows of a training step."""

from rankingmatch.core.names import first_few, printable
from rankingmatch.data.benchmarks import BENCHMARKS, Benchmark, benchmark
from rankingmatch.data.dataset import UNLABELED, Dataset, Images, Split
from rankingmatch.data.decode import decode_files
from rankingmatch.data.folder_contents import images_below, labeled_files
from rankingmatch.data.image_files import ImageFile
from rankingmatch.data.image_folder import ImageFolder
from rankingmatch.data.progress import Progress, no_progress, under_way
from rankingmatch.data.sampler import indices_of_step, rows_of_step
from rankingmatch.data.settings import DataSettings
from rankingmatch.data.sources import Source, dataset_title, find_source, is_benchmark, is_place
from rankingmatch.data.split import assemble_split, hide_labels, make_split, rows_to_json

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
    "assemble_split",
    "benchmark",
    "dataset_title",
    "decode_files",
    "find_source",
    "first_few",
    "hide_labels",
    "images_below",
    "indices_of_step",
    "is_benchmark",
    "is_place",
    "labeled_files",
    "make_split",
    "no_progress",
    "printable",
    "rows_of_step",
    "rows_to_json",
    "under_way",
]
