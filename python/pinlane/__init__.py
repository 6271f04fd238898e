"""Finds races of PyTorch and CUDA programs without a GPU: `pinlane race script.py`."""
from .errors import Unavailable
from .inside import RacesFound, race

__version__ = "0.1.0"
__all__ = ["RacesFound", "Unavailable", "__version__", "race"]
