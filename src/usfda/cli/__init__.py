"""The commands: a few lines each over the public names."""
