"""The version of the distribution, read by setuptools and sent to clients."""

__version__ = "0.2.0"
