"""The training script `train.py`, with debug settings on its own command line rather than that of `relay-agent run`.

    torchrun ... train_with_arguments.py --is-debug true --debug-relay-connection-name myhc --debug-ranks 3

Without these arguments, nothing is debugged.
"""

import argparse

from train import main

import relay_agent

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    relay_agent.add_debug_arguments(parser)
    options = parser.parse_args()

    relay_agent.start_remote_debugging_from_args()  # called in every rank; the ranks in --debug-ranks wait here
    main(options.steps)
