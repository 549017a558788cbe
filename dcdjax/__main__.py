"""`python -m dcdjax` is `dcdjax`."""

import sys

from dcdjax.cli import main

sys.exit(main())
