"""Tests compute on one thread: the same everywhere, and safe on a busy machine."""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import torch

torch.set_num_threads(1)
