"""Labeling images: which one next, a model of the labels so far, and an honest estimate of its error."""
