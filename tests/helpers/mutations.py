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


INJURIES = ("flip", "flip", "number", "number", "cut", "without", "twice", "noise", "piece", "word", "value")


def mutated(content: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """A valid file after one to four injuries; `others` lend it pieces."""
    for _ in range(draw.choice((1, 1, 1, 2, 3, 4))):
        content = _injured(content, draw.choice(INJURIES), draw.choice(others), draw)
    return content


def _place(content: bytes, draw: random.Random) -> int:
    """Somewhere, and often near the beginning or the end, where formats keep what they say of themselves."""
    end = max(1, len(content))
    return draw.choice((draw.randrange(end), draw.randrange(min(end, 64)), end - 1 - draw.randrange(min(end, 64))))


def _injured(content: bytes, injury: str, other: bytes, draw: random.Random) -> bytes:
    at = _place(content, draw)
    before, after = content[:at], content[at:]
    if injury == "flip":
        return before + bytes(byte ^ (1 << draw.randrange(8)) for byte in after[:1]) + after[1:]
    if injury == "number":
        size = draw.choice((1, 2, 4, 8))
        value = draw.choice((draw.choice(NUMBERS), draw.getrandbits(64))) & ((1 << 8 * size) - 1)
        return before + value.to_bytes(size, "little" if draw.random() < 0.5 else "big") + after[size:]
    if injury == "cut":
        return before
    if injury == "without":
        return before + after[draw.choice((1, 4, draw.randrange(1, 1000))) :]
    if injury == "twice":
        end = draw.randrange(1, 1000)
        return before + after[:end] * (1 + draw.choice((1, 1, 50))) + after[end:]
    if injury == "value":  # of a text: between a separator and the next
        separators = [place for place in range(len(content)) if content[place] in b":=,[ "]
        if not separators or len(content) > 100_000:
            return content
        start = draw.choice(separators) + 1
        end = next((place for place in range(start, len(content)) if content[place] in b",\n]}"), len(content))
        return content[:start] + draw.choice(WORDS) + content[end:]
    start = _place(other, draw)
    inserted = {
        "noise": draw.randbytes(draw.choice((1, 4, 100))),
        "piece": other[start : start + draw.randrange(1, 2000)],
        "word": draw.choice(WORDS),
    }[injury]
    return before + inserted + after[draw.choice((0, len(inserted), 5 if injury == "word" else 0)) :]
