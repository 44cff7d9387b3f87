"""Runs: their configuration and directory, training them, and using the trained model."""
