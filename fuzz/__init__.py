"""Coverage-guided fuzzing of all that reads what a stranger made; see docs/fuzzing.md."""
