"""Experiments of many runs: in parallel, resumable, each with its tables."""
