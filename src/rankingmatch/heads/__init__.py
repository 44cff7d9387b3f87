"""Classifiers on frozen features."""
