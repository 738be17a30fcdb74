"""M, the frozen backbone: an ONNX graph and a record of how to prepare an image for it."""
