"""Data that comes in: images by their place, vectors, labels."""
