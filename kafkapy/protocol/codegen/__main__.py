"""`python -m kafkapy.protocol.codegen [--check]`: write the generated files, or prove that they are current."""

import sys

from kafkapy.protocol.codegen.generate import main

sys.exit(main(sys.argv[1:]))
