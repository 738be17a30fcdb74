"""Method ``mixture``, the paper's: networks of the vendor and of the client, trained in torch.

In the order in which they are used: ``negatives``, ``latent`` and ``priors`` (samples of no class), ``procurement``
(the vendor's networks), ``adaptation`` (the client's F_t), ``networks`` (F, G and D in torch).
"""
