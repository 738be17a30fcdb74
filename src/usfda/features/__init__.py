"""From images to vectors: decoded, run through the backbone once, and kept."""
