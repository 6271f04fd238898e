"""`python -m pinlane`."""
import sys

from .command import main

sys.exit(main())
