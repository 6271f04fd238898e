"""Finds races of PyTorch and CUDA programs without a GPU: `pinlane race script.py`."""
from .errors import Unavailable

__version__ = "0.1.0"
__all__ = ["Unavailable", "__version__"]
