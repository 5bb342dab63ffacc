"""Small packages built into a folder, as `PIP_FIND_LINKS` takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from distlib.wheel import Wheel


def add_wheel(
    folder: Path,
    name: str,
    version: str,
    code: str = "",
    requires: Sequence[str] = (),
    urls: Mapping[str, str] = {},
    tag: tuple[str, str, str] = ("py3", "none", "any"),
) -> Path:
    """Build a wheel with one module into a folder and return its path."""
    source = folder.parent / "sources" / f"{name}-{version}"
    info = source / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    module = source / f"{name.replace('-', '_')}.py"
    module.write_text(code or f"VERSION = {version!r}\n", "utf-8")
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {one}" for one in requires]
    lines += [f"Project-URL: {label}, {address}" for label, address in urls.items()]
    (info / "METADATA").write_text("\n".join(lines) + "\n", "utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    wheel = Wheel()
    wheel.name, wheel.version, wheel.dirname = name.replace("-", "_"), version, str(folder)
    tags = {"pyver": [tag[0]], "abi": [tag[1]], "arch": [tag[2]]}
    return Path(wheel.build({"purelib": str(source), "prefix": str(source)}, tags))
