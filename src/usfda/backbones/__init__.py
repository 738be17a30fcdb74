"""M, the frozen backbone: an ONNX graph and a record of how to prepare an image for it."""

# The default first. ``zoo.get_backbone`` makes them; help and errors list them from here, without loading anything.
NAMES = ("efficientnet_lite0", "dinov2-small", "gradients", "pixels", "onnx:FILE", "timm:NAME", "timm:NAME@WEIGHTS")
