"""`python -m kafkapy.embedded.controlled.node_main DESCRIPTOR FILE`: runs node.py. Imports nothing before it must."""

import sys

from kafkapy.child_command import prepare_start

if __name__ == "__main__":
    prepare_start()
    from kafkapy.embedded.controlled.node import main

    sys.exit(main(sys.argv[1:]))
