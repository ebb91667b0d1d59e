"""`dprl` and `python -m dprl`: the command line."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; Ctrl-C ends it in words, also while it is still being imported."""
    try:
        from dprl.apps.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("stopped.\n")
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
