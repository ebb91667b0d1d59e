"""`python -m dprl`: the command line."""

from dprl.cli import main

if __name__ == "__main__":
    main()
