"""The service: predictions over HTTP, and adaptation in the background on the images that arrive."""
