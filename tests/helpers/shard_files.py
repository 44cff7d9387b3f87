"""Tar and Parquet files of images, made for tests."""

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path


def member(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    """A member of a tar; `fields` overwrite those of its header."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def write_tar(path: Path, members: Iterable[tuple[tarfile.TarInfo, bytes]], format: int = tarfile.PAX_FORMAT) -> Path:
    """Write a tar of these members."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=format) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return path


def samples(folder: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    """The images of class folders in the order in which they are scanned, each with its class as KEY.cls."""
    found: list[tuple[tarfile.TarInfo, bytes]] = []
    for file in sorted(folder.rglob("*.png")):
        key = f"{len(found) // 2:04d}"
        found += [member(f"{key}.png", file.read_bytes()), member(f"{key}.cls", file.parent.name.encode())]
    return found


def shards_of(folder: Path, target: Path, each: int = 5) -> Path:
    """The parts of a folder (labeled/, val/, …) as shards of so many images: labeled-0.tar, …"""
    for part in sorted(path for path in folder.iterdir() if path.is_dir()):
        members = samples(part)
        if part.name == "unlabeled":
            members = [one for one in members if not one[0].name.endswith(".cls")]
        size = each * (1 if part.name == "unlabeled" else 2)
        for number, start in enumerate(range(0, len(members), size)):
            write_tar(target / f"{part.name}-{number}.tar", members[start : start + size])
    return target


def write_parquet(path: Path, images: list[bytes | None], labels: list[int] | list[str] | None = None) -> Path:
    """Write a Parquet file as Hugging Face's datasets does, with groups of four rows; numbers have names of classes."""
    import pyarrow
    from pyarrow import parquet

    names = ["blue", "green", "red"]
    columns: dict[str, object] = {"image": [{"bytes": one, "path": f"{row}.png"} for row, one in enumerate(images)]}
    if labels is not None:
        columns["label"] = labels
    features = {"label": {"names": names, "_type": "ClassLabel"}, "image": {"_type": "Image"}}
    table = pyarrow.table(columns).replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path, row_group_size=4)
    return path
