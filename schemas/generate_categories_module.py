"""Makes the classes of the tree: ``python schemas/generate_categories_module.py``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
SOURCE = _HERE / "categories.yaml"
TARGET = _HERE.parent / "dftrace_ai" / "annotation" / "categories.py"

ADDITION = "An addition to dftracer's names."

_HEAD = '''"""The tree's categories and names. Generated: edit schemas/categories.yaml instead."""

from __future__ import annotations

from dftrace_ai.annotation.node import ProfilerNode
'''


def _class(name: str, doc: str, nodes: dict[str, str], io: bool, prefix: str) -> list[str]:
    lines = ["", "", f"class {name}(ProfilerNode):", f'    """{doc}"""', ""]
    for attribute, text in nodes.items():
        lines += [f"    {attribute}: ProfilerNode", f'    """{text}"""']
    if io:
        lines += ["    io: Io", '    """Operations on files and streams."""']
    lines += ["", "    def _grow(self) -> None:"]
    for attribute in nodes:
        event = f'"{attribute}"' if not prefix else f'f"{prefix}{attribute}"'
        lines.append(f"        self.{attribute} = self._child({event})")
    if io:
        lines.append('        self.io = self._child(f"{self.name}.io", Io)')
    return lines


def _nodes(entry: dict[str, Any]) -> dict[str, str]:
    """Return the names of a category with what they mean; of those that are ours it is said."""
    additions: dict[str, str] = entry.get("additions", {})
    ours = {name: f"{doc} {ADDITION}" for name, doc in additions.items()}
    return {**entry["nodes"], **ours}


def generated(source: Path = SOURCE) -> str:
    """Make the text of categories.py.

    Args:
        source: the YAML file of the vocabulary.

    Returns:
        Python source, formatted as the project's formatter leaves it.
    """
    import yaml

    tree: dict[str, Any] = yaml.safe_load(source.read_text(encoding="utf-8"))
    categories: dict[str, Any] = tree["categories"]
    classes = {name: "DataLoader" if name == "dataloader" else name.title() for name in categories}
    lines = _HEAD.splitlines()
    lines += _class("Io", tree["io"]["doc"], tree["io"]["nodes"], io=False, prefix="{self.name}.")
    for name, entry in categories.items():
        prefix = "{self.name}." if entry.get("qualified") else ""
        io = bool(entry.get("io"))
        lines += _class(classes[name], entry["doc"], _nodes(entry), io, prefix)
    root = tree["root"]
    lines += ["", "", "class Categories(ProfilerNode):", '    """The root of the tree."""', ""]
    for name, entry in categories.items():
        lines += [f"    {name}: {classes[name]}", f'    """{entry["doc"]}"""']
    lines += ["", "    def _grow(self) -> None:"]
    for name in categories:
        lines.append(f'        self.{name} = self._branch("{name}", {classes[name]})')
    lines += ["", "", f'ROOT = ("{root["cat"]}", "{root["name"]}")']
    lines += ["CATEGORIES = ("]
    lines += [f'    "{name}",' for name in categories]
    lines += [")", ""]
    return "\n".join(lines)


def main() -> None:
    """Write the file."""
    TARGET.write_text(generated(), encoding="utf-8")
    sys.stdout.write(f"wrote {TARGET.name}\n")


if __name__ == "__main__":
    main()
