"""`python -m kafkapy.protocol.codegen [--check]`: write the generated files, or check that they are up to date."""

import sys

from kafkapy.protocol.codegen.generate import main

sys.exit(main(sys.argv[1:]))
