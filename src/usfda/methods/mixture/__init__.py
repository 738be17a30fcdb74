"""Method ``mixture``, the default: a mixture of source classes and of clusters of unknown samples.

In the order in which they are used: ``class_statistics`` and ``classifier`` (the vendor's part), ``neighbours`` and
``target`` (the target as the decision sees it), ``statistics``, ``split`` and ``learned`` (known or unknown), ``fit``
(centres and masses), ``checks`` (what is reported).
"""
