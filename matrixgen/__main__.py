"""`python -m matrixgen` is the same as the console script."""

from matrixgen.cli import main

if __name__ == "__main__":
    main()
