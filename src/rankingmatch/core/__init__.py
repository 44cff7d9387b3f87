"""What everything else builds on: errors, options, randomness, processes, files, and small pure functions."""
