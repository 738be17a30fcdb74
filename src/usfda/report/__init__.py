"""The report: what a model makes of a target, in one HTML file that works from disk and asks for nothing else."""
