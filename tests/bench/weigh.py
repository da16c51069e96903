"""Runs a command and writes what it cost: ``python -IS weigh.py FILE COMMAND…``.

A program of its own that imports little, because a process inherits the peak of memory of the one it was
started from: nothing smaller than this, about 7 MB, can be seen.
"""

import os
import resource
import sys
import time


def main() -> None:
    """Write seconds, user and system seconds, and the peak bytes of the largest process to FILE."""
    file, *command = sys.argv[1:]
    began = time.perf_counter()
    status = os.spawnvp(os.P_WAIT, command[0], command)  # noqa: S606 - no shell is wanted
    seconds = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    unit = 1 if sys.platform == "darwin" else 1024
    with open(file, "w", encoding="ascii") as out:  # noqa: PTH123 - pathlib is not small
        print(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * unit, file=out)
    sys.exit(status)


if __name__ == "__main__":
    main()
