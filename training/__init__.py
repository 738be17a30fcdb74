"""The training of the learned decision: not part of the package (docs/training.md)."""
