"""The command line: `gigaknn` and `python -m gigaknn` run the program that came with the package."""

import os
import sys

from ._plugin import program


def main():
    os.execv(program(), ["gigaknn", *sys.argv[1:]])


if __name__ == "__main__":
    main()
