"""`python -m sparc` is `sparc`."""

import sys

from sparc.cli import main

sys.exit(main())
