"""The extrapolated tables of docs/scale.md: arithmetic on what `benchmarks/network.py` measured, and on assumptions."""

from collections.abc import Mapping

from rankingmatch.training.settings import TrainSettings

LABELED, MU, CLASSES = 64, 7, 10
UNLABELED = LABELED * MU
IMAGES = LABELED + 2 * UNLABELED  # a joint pass: labeled, weak and strong views
SPEED = 10e12  # operations per second that a GPU is assumed to sustain
STEPS = TrainSettings().total_steps  # the full protocol
FLOAT = 4  # bytes
POOL, GPUS = 10**8, 64
MEGA, GIGA, TERA = 1e6, 1e9, 1e12


def many_gpus(image: Mapping[str, float]) -> str:
    """A column for each number of GPUs, each with a batch of its own."""
    counts = (1, 8, 64)
    seconds = IMAGES * image["training"] / SPEED
    weights = FLOAT * image["parameters"]
    memory = IMAGES * image["activations"] + 4 * weights  # weights, gradients, momentum, EMA
    rows: dict[str, list[str]] = {
        "images per step": [f"{IMAGES * n:,}" for n in counts],
        "compute per step and GPU": [f"{IMAGES * image['training'] / TERA:.2f} TFLOP, {seconds:.2f} s" for _ in counts],
        "full protocol": [f"{seconds * STEPS / 3600:.1f} h" for _ in counts],
        "the same number of images as on 1 GPU": [f"{seconds * STEPS / n / 60:,.0f} minutes" for n in counts],
        "memory per GPU, without ranking": [f"{memory / GIGA:.1f} GB" for _ in counts],
        "gradients sent per GPU and step": [_megabytes(2 * (n - 1) / n * weights) for n in counts],
        "rows ranked together (all confident)": [f"{UNLABELED * n:,}" for n in counts],
        "one n/p × n matrix of the ranking loss": [_megabytes(UNLABELED * UNLABELED * n * FLOAT) for n in counts],
        "logits gathered for it, 10 classes": [_megabytes((n > 1) * UNLABELED * n * CLASSES * FLOAT) for n in counts],
        "pairs of views that a process needs": [f"{UNLABELED / seconds:,.0f} per second" for _ in counts],
    }
    return _markdown(("", *(f"{n} GPU{'s' if n > 1 else ''}" for n in counts)), rows)


def many_images(image: Mapping[str, float]) -> str:
    """A column for each size of the images of a pool."""
    seconds = IMAGES * image["training"] / SPEED
    sizes = {"32×32×3": 32 * 32 * 3, "224×224×3": 224 * 224 * 3}  # bytes of an image
    steps = POOL / UNLABELED
    rows = {
        "bytes of an image": [f"{size:,}" for size in sizes.values()],
        "decoded on disk": [f"{POOL * size / TERA:.1f} TB" for size in sizes.values()],
        f"read per step and GPU, {UNLABELED} images": [_megabytes(UNLABELED * size) for size in sizes.values()],
        f"read by {GPUS} GPUs": [f"{GPUS * UNLABELED * size / seconds / GIGA:.1f} GB/s" for size in sizes.values()],
        f"random reads of {GPUS} GPUs": [f"{GPUS * UNLABELED / seconds:,.0f} per second"] * len(sizes),
        "steps until each image has been used once": [f"{steps:,.0f}, {steps / GPUS:,.0f} on {GPUS} GPUs"] * len(sizes),
    }
    return _markdown(("", *sizes), rows)


def _megabytes(count: float) -> str:
    return f"{count / MEGA:.2g} MB" if count else "–"


def _markdown(head: tuple[str, ...], rows: Mapping[str, list[str]]) -> str:
    lines = [head, tuple("---" for _ in head), *((name, *cells) for name, cells in rows.items())]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
