"""`python -m benchmarks`: the comparison with RabbitMQ."""

import sys

from benchmarks.compare import main

sys.exit(main())
