"""A stand-in for Azure ML's driver for parallel steps; only `submit.py --local` uses it.

The driver calls `init()` once, `run()` for each mini-batch of files, and `shutdown()` if the script defines it. It
writes the returned rows to one file. It is a single process on one node, without retries or timeouts.
"""

import argparse
import importlib
import sys
from pathlib import Path


def main() -> int:
    """Run an entry script on all files in a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entry-script", type=Path, required=True)
    parser.add_argument("--input-data", type=Path, required=True)
    parser.add_argument("--mini-batch-size", type=int, required=True)
    parser.add_argument("--append-row-to", type=Path, required=True)
    options, program_arguments = parser.parse_known_args()

    sys.path.insert(0, str(options.entry_script.resolve().parent))
    sys.argv = [str(options.entry_script), *program_arguments]
    script = importlib.import_module(options.entry_script.stem)
    files = sorted(str(path) for path in options.input_data.iterdir())
    script.init()
    with options.append_row_to.open("w") as rows:
        for start in range(0, len(files), options.mini_batch_size):
            mini_batch = files[start : start + options.mini_batch_size]
            results = list(script.run(mini_batch))
            if len(results) != len(mini_batch):
                print(f"run() returned {len(results)} rows for {len(mini_batch)} files", file=sys.stderr)
                return 1
            rows.writelines(f"{row}\n" for row in results)
    getattr(script, "shutdown", lambda: None)()
    print(f"{options.entry_script.stem}: handled {len(files)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
