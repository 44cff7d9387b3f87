"""Damage for files: what a bad disk, a torn download or an enemy might do to a valid one."""

import random

NUMBERS = (0, 1, 2, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
WORDS = tuple(
    word.encode()
    for word in (
        *("null", "true", "NaN", "Infinity", "-1", "0", "1e999", "1e-999", "9" * 5000, "2.5", '""', "{}", "[]"),
        *('"', "'", ",", "\n", "\r", "\x00", "\ufeff", "../..", "/dev/zero", "os:system", "file,label", "\x1b[2J"),
        *("[" * 5000, '{"a":' * 3000, "{a=" * 2000, "é" * 70_000, '"digits"', '"wrn-10-1"', '"rankingmatch-bm"'),
    )
)


def mutated(content: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """A valid file after one to four injuries; `others` lend it pieces."""
    for _ in range(draw.choice((1, 1, 1, 2, 3, 4))):
        content = draw.choice(INJURIES)(content, others, draw)
    return content


def _place(content: bytes, draw: random.Random) -> int:
    """Somewhere, and often near the beginning or the end, where formats keep what they say of themselves."""
    end = max(1, len(content))
    return draw.choice((draw.randrange(end), draw.randrange(min(end, 64)), end - 1 - draw.randrange(min(end, 64))))


def _flip(content: bytes, _: list[bytes], draw: random.Random) -> bytes:
    at = _place(content, draw)
    return content[:at] + bytes(byte ^ (1 << draw.randrange(8)) for byte in content[at : at + 1]) + content[at + 1 :]


def _number(content: bytes, _: list[bytes], draw: random.Random) -> bytes:
    at, size = _place(content, draw), draw.choice((1, 2, 4, 8))
    value = draw.choice((draw.choice(NUMBERS), draw.getrandbits(64))) & ((1 << 8 * size) - 1)
    written = value.to_bytes(size, "little" if draw.random() < 0.5 else "big")
    return content[:at] + written + content[at + size :]


def _cut(content: bytes, _: list[bytes], draw: random.Random) -> bytes:
    return content[: _place(content, draw)]


def _without(content: bytes, _: list[bytes], draw: random.Random) -> bytes:
    at = _place(content, draw)
    return content[:at] + content[at + draw.choice((1, 4, draw.randrange(1, 1000))) :]


def _twice(content: bytes, _: list[bytes], draw: random.Random) -> bytes:
    at = _place(content, draw)
    end = at + draw.randrange(1, 1000)
    return content[:end] + content[at:end] * draw.choice((1, 1, 50)) + content[end:]


def _noise(content: bytes, _: list[bytes], draw: random.Random) -> bytes:
    at, size = _place(content, draw), draw.choice((1, 4, 100))
    return content[:at] + draw.randbytes(size) + content[at + draw.choice((0, size)) :]


def _piece(content: bytes, others: list[bytes], draw: random.Random) -> bytes:
    other, at = draw.choice(others), _place(content, draw)
    start, size = _place(other, draw), draw.randrange(1, 2000)
    return content[:at] + other[start : start + size] + content[at + draw.choice((0, size)) :]


def _word(content: bytes, _: list[bytes], draw: random.Random) -> bytes:
    at, word = _place(content, draw), draw.choice(WORDS)
    return content[:at] + word + content[at + draw.choice((0, len(word), 5)) :]


def _value(content: bytes, _: list[bytes], draw: random.Random) -> bytes:
    """Another value where a text has one: between a separator and the next."""
    separators = [at for at in range(len(content)) if content[at] in b":=,[ "]
    if not separators or len(content) > 100_000:
        return content
    at = draw.choice(separators) + 1
    end = at
    while end < len(content) and content[end] not in b",\n]}":
        end += 1
    return content[:at] + draw.choice(WORDS) + content[end:]


INJURIES = (_flip, _flip, _number, _number, _cut, _without, _twice, _noise, _piece, _word, _value)
