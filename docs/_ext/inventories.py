"""Links to other projects without the network: inventories from short lists that are kept here.

Each file NAME.txt begins with the address of the project's pages. Every further line is a role, a
name and the place of the name under that address; `$` stands for the name itself.
"""

import zlib
from pathlib import Path


def mapping(lists: Path, made: Path) -> dict[str, tuple[str, str]]:
    """Write an inventory for each list and name it as intersphinx wants it named."""
    made.mkdir(exist_ok=True)
    known = {}
    for file in sorted(lists.glob("*.txt")):
        address, *lines = [line for line in file.read_text().splitlines() if line.strip()]
        inventory = made / f"{file.stem}.inv"
        inventory.write_bytes(_inventory(file.stem, lines))
        known[file.stem] = (address, str(inventory))
    return known


def _inventory(project: str, lines: list[str]) -> bytes:
    """The second version of Sphinx's format: a head in plain text, then compressed lines."""
    head = (
        "# Sphinx inventory version 2\n"
        f"# Project: {project}\n"
        "# Version: \n"
        "# The remainder of this file is compressed using zlib.\n"
    )
    rows = []
    for line in lines:
        role, name, place = line.split()
        rows.append(f"{name} {role} 1 {place.replace('$', name)} -")
    return head.encode() + zlib.compress(("\n".join(rows) + "\n").encode())
