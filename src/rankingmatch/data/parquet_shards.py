"""Parquet files of images as Hugging Face's datasets stores them: a column of images, and maybe one of labels."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from rankingmatch.core.errors import ConfigError, DataError, first_line
from rankingmatch.core.names import printable
from rankingmatch.core.untrusted import BadFileError, parse_json
from rankingmatch.data.image_files import UnreadableError
from rankingmatch.data.shard_file import MOST_IMAGE, Shard, find_shard, label_text

__all__ = ["Row", "read_parquet"]

IMAGES, LABELS = ("image", "img"), ("label", "labels")  # names of columns
MOST_GROUP = 2**30  # bytes of a group of rows, which is read as a whole
MOST_ROWS = 2**20  # in a group
GROUPS_KEPT = 2  # in memory
_one_reads = threading.Lock()  # so that threads that decode images of a group read it once


class Row(NamedTuple):
    """An image in a row of a Parquet file; a `StoredImage`.

    Attributes
    ----------
    shard
        The file.
    name
        The number of the row, followed by the name of the image if there is one.
    column
        The column of images.
    group, row
        The group of rows, and the row in it.
    """

    shard: Shard
    name: str
    column: str
    group: int
    row: int

    def __str__(self) -> str:
        return f"{self.shard.path}/{self.name}"

    @property
    def size(self) -> int:
        """The number of its bytes, for which it is read."""
        return len(self.read())

    def read(self) -> bytes:
        """Its bytes; UnreadableError if there are none or too many, or if the shard has changed."""
        try:
            with _one_reads:
                content = _images(self.shard, self.column, self.group)[self.row].as_py()
        except IndexError as error:
            raise UnreadableError("is missing in its shard") from error
        if not content:
            raise UnreadableError("is empty")
        if len(content) > MOST_IMAGE:
            raise UnreadableError(f"has {len(content):,} bytes, too many for an image in a shard")
        return bytes(content)

    def stamp(self, *, exactly: bool = False) -> str:
        """Its place, and the size and the times of the shard."""
        return f"{self.group} {self.row} {self.shard.size} {self.shard.stamp(exactly=exactly)}"


def read_parquet(path: Path, *, labels: bool) -> Iterator[tuple[Row, str]]:
    """The images of a Parquet file in their order, each with its label, which is empty if there is none.

    Parameters
    ----------
    path
        The file.
    labels
        Whether to read the labels.

    Raises
    ------
    DataError
        If it is damaged, has no column of images, or labels that cannot be used.
    """
    shard, number = find_shard(path), 0
    with _reasons(path), shard.open() as file:
        table = _parquet(path).ParquetFile(file)
        schema = table.schema_arrow
        image, label = _image_column(schema), _column(schema, LABELS) if labels else None
        names = _class_names(schema, label)
        has_names = "path" in _fields(schema.field(image).type)
        for group in range(table.num_row_groups):
            _check_group(table.metadata.row_group(group))
            files = _values(table, group, f"{image}.path" if has_names else None)
            found = _values(table, group, label)
            for row, (file_name, value) in enumerate(zip(files, found, strict=True)):
                base = PurePosixPath(file_name["path"]).name if has_names and file_name and file_name["path"] else ""
                name = f"{number:06d}/{base}" if base else f"{number:06d}"
                yield Row(shard, name, image, group, row), _label(value, names)
                number += 1


def _parquet(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(
            f"{printable(str(path))} needs PyArrow; install it: pip install 'rankingmatch[shards]'"
        ) from error
    return parquet


@contextmanager
def _reasons(path: Path) -> Iterator[None]:
    """Whatever is wrong with the file is a DataError."""
    try:
        yield
    except (ConfigError, DataError):
        raise
    except (BadFileError, UnreadableError) as error:
        raise DataError(f"{printable(str(path))} cannot be used: {error}") from error
    except Exception as error:  # PyArrow raises many types for a damaged file
        raise DataError(
            f"{printable(str(path))} is not a Parquet file, or it is damaged ({printable(first_line(error))}); make or "
            "copy it again"
        ) from error


def _column(schema: Any, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in schema.names), None)


def _image_column(schema: Any) -> str:
    """The column of images, which are bytes, or a struct with bytes."""
    name = _column(schema, IMAGES)
    if name is None:
        raise BadFileError(f"it has no column image, but {', '.join(schema.names[:10])}")
    kind = schema.field(name).type
    if "bytes" in _fields(kind):
        kind = kind.field("bytes").type
    if str(kind) not in ("binary", "large_binary"):
        raise BadFileError(f"its column {name} has values of type {str(kind)[:50]} instead of bytes")
    return name


def _fields(kind: Any) -> list[str]:
    """The names of the fields of a struct; none of another type."""
    return [kind.field(index).name for index in range(kind.num_fields)] if str(kind).startswith("struct") else []


def _check_group(metadata: Any) -> None:
    if metadata.num_rows > MOST_ROWS or metadata.total_byte_size > MOST_GROUP:
        raise BadFileError(
            f"it has groups of {metadata.num_rows:,} rows and {metadata.total_byte_size:,} bytes, but at most "
            f"{MOST_ROWS:,} and {MOST_GROUP:,} are read at once; write it with smaller row groups"
        )


def _values(table: Any, group: int, column: str | None) -> list[Any]:
    """The values of a column in a group of rows; None for each row without a column."""
    if column is None:
        return [None] * table.metadata.row_group(group).num_rows
    values: list[Any] = table.read_row_group(group, columns=[column], use_threads=False).column(0).to_pylist()
    return values


def _class_names(schema: Any, label: str | None) -> list[str]:
    """The names of the classes of whole numbers, if the file has them."""
    about = (schema.metadata or {}).get(b"huggingface")
    if label is None or about is None:
        return []
    values = parse_json(about)
    for key in ("info", "features", label):
        values = values.get(key, {}) if isinstance(values, dict) else {}
    names = values.get("names") if isinstance(values, dict) else None
    return [label_text(name) for name in names] if isinstance(names, list) else []


def _label(value: object, names: list[str]) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names):
        return names[value]
    return label_text(value)


@lru_cache(maxsize=GROUPS_KEPT)
def _images(shard: Shard, column: str, group: int) -> Any:
    """The bytes of the images in a group of rows."""
    try:
        with _reasons(Path(shard.path)), shard.open() as file:
            table = _parquet(Path(shard.path)).ParquetFile(file)
            kind = table.schema_arrow.field(column).type
            name = f"{column}.bytes" if _fields(kind) else column
            images = table.read_row_group(group, columns=[name], use_threads=False).column(0).combine_chunks()
            return images.field("bytes") if _fields(kind) else images
    except DataError as error:
        raise UnreadableError(f"cannot be read ({error})") from error
