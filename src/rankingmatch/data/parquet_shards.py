"""Parquet files of images as Hugging Face's datasets stores them: a column of images, and maybe one of labels."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import repeat
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from rankingmatch.core.errors import ConfigError, DataError, first_line
from rankingmatch.core.names import printable
from rankingmatch.core.untrusted import BadFileError, parse_json
from rankingmatch.data.decode import UnreadableError
from rankingmatch.data.shards import MOST_IMAGE, Shard, label_text

IMAGES, LABELS = ("image", "img"), ("label", "labels")  # names of columns
MOST_GROUP = 2**30  # bytes of a group of rows, also of its images, which are in memory together
MOST_ROWS = 2**20  # in a group
LONGEST_PATH = 4096  # characters of the name of an image; only the end of a longer one is used
GROUPS_KEPT = 2  # in memory
_one_reads = threading.Lock()  # so that threads that decode images of a group read it once


class Row(NamedTuple):
    """An image in a row of a Parquet file; a `StoredImage`."""

    shard: Shard
    name: str  # the number of the row, followed by the name of the image if there is one
    column: str  # of bytes
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
        with _one_reads:
            images = _images(self.shard, self.column, self.group)
        if isinstance(images, str):
            raise UnreadableError(images)
        if self.row >= len(images):
            raise UnreadableError("is missing in its shard")
        content = images[self.row]
        if not content:
            raise UnreadableError("is empty")
        if len(content) > MOST_IMAGE:
            raise UnreadableError(f"has {len(content):,} bytes, too many for an image in a shard")
        return content

    def stamp(self, *, exactly: bool = False) -> str:
        """Its place, and the size and the times of the shard."""
        return f"{self.group} {self.row} {self.shard.size} {self.shard.stamp(exactly=exactly)}"


def read_parquet(shard: Shard, *, labels: bool) -> Iterator[tuple[Row, str]]:
    """The images of a Parquet file in their order, each with its label."""
    number = 0
    with _table(shard) as table:
        schema = table.schema_arrow
        image = next((name for name in IMAGES if name in schema.names), None)
        if image is None:
            raise BadFileError(f"it has no column image, but {', '.join(schema.names[:10])}")
        kind, column, names = schema.field(image).type, image, None
        if str(kind).startswith("struct"):
            fields = [kind.field(index).name for index in range(kind.num_fields)]
            names = f"{image}.path" if "path" in fields else None
            if "bytes" in fields:
                kind, column = kind.field("bytes").type, f"{image}.bytes"
        if str(kind) not in ("binary", "large_binary"):
            raise BadFileError(f"its column {image} has values of type {str(kind)[:50]} instead of bytes")
        label = next((name for name in LABELS if labels and name in schema.names), None)
        classes = _class_names(schema, label)
        for group in range(table.num_row_groups):
            about = table.metadata.row_group(group)
            if about.num_rows > MOST_ROWS or about.total_byte_size > MOST_GROUP:
                raise BadFileError(
                    f"it has groups of {about.num_rows:,} rows and {about.total_byte_size:,} bytes, but at most "
                    f"{MOST_ROWS:,} and {MOST_GROUP:,} are read at once; write it with smaller row groups"
                )
            rows = zip(_values(table, group, names), _values(table, group, label), strict=True)
            for row, (path, value) in enumerate(rows):
                base = PurePosixPath(path[-LONGEST_PATH:]).name if path else ""
                named = type(value) is int and 0 <= value < len(classes)
                name = f"{number:06d}/{base}" if base else f"{number:06d}"
                yield Row(shard, name, column, group, row), classes[value] if named else label_text(value)
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


def _values(table: Any, group: int, column: str | None) -> Iterator[Any]:
    """The values of a column in a group of rows; None for each row without a column.

    They are made one by one, because a file of a few bytes may repeat one of many megabytes in all its rows.
    """
    if column is None:
        yield from repeat(None, table.metadata.row_group(group).num_rows)
        return
    for batch in table.iter_batches(batch_size=1, row_groups=[group], columns=[column], use_threads=False):
        value = batch.column(0)[0].as_py()
        yield next(iter(value.values())) if isinstance(value, dict) else value


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
def _images(shard: Shard, column: str, group: int) -> list[bytes | None] | str:
    """The bytes of the images in a group of rows, or why they cannot be read, which is found out only once."""
    images: list[bytes | None] = []
    seen: dict[bytes | None, bytes | None] = {}  # so that an image in many rows is in memory once
    total = 0
    try:
        with _table(shard) as table:
            for content in _values(table, group, column):
                images.append(seen.setdefault(content, content))
                total += len(content or b"")
                if total > MOST_GROUP:
                    raise BadFileError(f"the images in a group of rows have more than {MOST_GROUP:,} bytes")
    except DataError as error:
        return f"cannot be read ({error})"
    return images
