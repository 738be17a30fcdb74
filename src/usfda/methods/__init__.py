"""The formulas, on vectors alone: nothing here knows of files or images."""
