"""`dprl completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from dprl.apps.cli._app import app, command
from dprl.apps.cli.console import show

__all__ = ["completion"]


@command
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="The shell.")], /
) -> int:
    """Print what makes a shell complete dprl's commands and options with the tab key.

    Example: `dprl completion bash > ~/.local/share/bash-completion/completions/dprl`

    Example: `dprl completion zsh > ~/.zfunc/_dprl`, with that folder in fpath

    Example: `dprl completion fish > ~/.config/fish/completions/dprl.fish`
    """
    show(app.generate_completion(prog_name="dprl", shell=shell).rstrip(), as_json=False)
    return 0
