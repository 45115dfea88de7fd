"""``python -m service`` from a checkout: the former name of ``python -m hapax``."""

from hapax.__main__ import main

if __name__ == "__main__":
    main()
