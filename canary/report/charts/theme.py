"""The colours of pages and charts, light and dark. Pure.

Pictures are drawn in the light colours; the style sheet replaces each where the reader's system is
dark. Every pair that means something also differs in dash, shape or word.
"""

from __future__ import annotations

COLOURS = {
    "ink": ("#24292f", "#e6edf3"),
    "faint": ("#59636e", "#9da7b1"),
    "line": ("#d1d9e0", "#3d444d"),
    "paper": ("#ffffff", "#0d1117"),
    "raised": ("#f6f8fa", "#161b22"),
    "baseline": ("#4f6d8f", "#8db4e0"),
    "current": ("#bc4c00", "#f0883e"),
    "bad": ("#a40e26", "#ff8182"),
    "good": ("#1a7f37", "#56d364"),
    "unsure": ("#7d4e00", "#e3b341"),
    "blue": ("#0072b2", "#58a6ff"),
    "purple": ("#8250df", "#bc8cff"),
    "teal": ("#1b7c83", "#39c5cf"),
    "brown": ("#9a6700", "#d29922"),
}
"""Each light and dark."""
LIGHT = {name: light for name, (light, _) in COLOURS.items()}


def style_of_colours() -> str:
    """Return the style sheet's part that names the colours and recolours pictures."""
    light, dark = (
        " ".join(f"--{name}: {colours[shade]};" for name, colours in COLOURS.items())
        for shade in (0, 1)
    )
    pictures = "\n".join(
        f'[{part}="{colour}"] {{ {part}: var(--{name}); }}'
        for name, colour in LIGHT.items()
        for part in ("fill", "stroke")
    )
    # Paper is light, so a page is printed in the light colours.
    return (
        f":root {{ {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{pictures}\n"
    )
