"""The package's tests. `scripts/python-tests` runs them; those with PyTorch say so."""
