"""Kernels that are written as Python functions.

``language`` has the words that such a function uses, ``translate`` makes WGSL of its syntax tree, ``interpret`` runs it as ordinary
Python, and ``kernel`` puts them together.
"""
