"""`python -m dprl`: the command line where no script is installed."""

from dprl.cli import main

if __name__ == "__main__":
    main()
