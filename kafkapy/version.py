"""The version of the distribution: read by setuptools, and by what tells it to clients."""

__version__ = "0.1.0"
