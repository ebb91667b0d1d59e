"""`python -m dprl`: the command line."""

from dprl.apps.cli.main import main

if __name__ == "__main__":
    main()
