"""Parquet files of images as Hugging Face's datasets stores them: a column of images, and maybe one of labels."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from rankingmatch.core.errors import ConfigError, DataError, first_line
from rankingmatch.core.names import printable
from rankingmatch.core.untrusted import BadFileError, parse_json
from rankingmatch.data.decode import UnreadableError
from rankingmatch.data.shards import MOST_IMAGE, Shard, label_text

IMAGES, LABELS = ("image", "img"), ("label", "labels")  # names of columns
MOST_GROUP = 2**30  # bytes of a group of rows, which is read as a whole
MOST_ROWS = 2**20  # in a group
GROUPS_KEPT = 2  # in memory
_one_reads = threading.Lock()  # so that threads that decode images of a group read it once


class Row(NamedTuple):
    """An image in a row of a Parquet file; a `StoredImage`."""

    shard: Shard
    name: str  # the number of the row, followed by the name of the image if there is one
    column: str  # of images
    group: int  # of rows
    row: int  # in the group

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


def read_parquet(shard: Shard, *, labels: bool) -> Iterator[tuple[Row, str]]:
    """The images of a Parquet file in their order, each with its label."""
    number = 0
    with _table(shard) as table:
        schema = table.schema_arrow
        image, label = _image_column(schema), _column(schema, LABELS) if labels else None
        names = _class_names(schema, label)
        has_names = "path" in _fields(schema.field(image).type)
        for group in range(table.num_row_groups):
            about = table.metadata.row_group(group)
            if about.num_rows > MOST_ROWS or about.total_byte_size > MOST_GROUP:
                raise BadFileError(
                    f"it has groups of {about.num_rows:,} rows and {about.total_byte_size:,} bytes, but at most "
                    f"{MOST_ROWS:,} and {MOST_GROUP:,} are read at once; write it with smaller row groups"
                )
            files = _values(table, group, f"{image}.path" if has_names else None)
            found = _values(table, group, label)
            for row, (file_name, value) in enumerate(zip(files, found, strict=True)):
                base = PurePosixPath(file_name["path"]).name if has_names and file_name and file_name["path"] else ""
                named = type(value) is int and 0 <= value < len(names)
                name = f"{number:06d}/{base}" if base else f"{number:06d}"
                yield Row(shard, name, image, group, row), names[value] if named else label_text(value)
                number += 1


@contextmanager
def _table(shard: Shard) -> Iterator[Any]:
    """The open file; whatever is wrong with it is a DataError."""
    path = printable(shard.path)
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(f"{path} needs PyArrow; install it: pip install 'rankingmatch[shards]'") from error
    try:
        with shard.open() as file:
            yield parquet.ParquetFile(file)
    except (BadFileError, UnreadableError) as error:
        raise DataError(f"{path} cannot be used: {error}") from error
    except Exception as error:  # PyArrow raises many types for a damaged file
        raise DataError(
            f"{path} is not a Parquet file, or it is damaged ({printable(first_line(error))}); make or copy it again"
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


@lru_cache(maxsize=GROUPS_KEPT)
def _images(shard: Shard, column: str, group: int) -> Any:
    """The bytes of the images in a group of rows."""
    try:
        with _table(shard) as table:
            is_struct = bool(_fields(table.schema_arrow.field(column).type))
            name = f"{column}.bytes" if is_struct else column
            images = table.read_row_group(group, columns=[name], use_threads=False).column(0).combine_chunks()
            return images.field("bytes") if is_struct else images
    except DataError as error:
        raise UnreadableError(f"cannot be read ({error})") from error
