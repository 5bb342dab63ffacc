"""The colours of pages and charts, light and dark. Pure.

Pictures are drawn in the light colours; the style sheet replaces each where the reader's system is
dark. Every pair that means something also differs in dash, shape or word.
"""

from __future__ import annotations

LIGHT = {
    "ink": "#24292f",
    "faint": "#59636e",
    "line": "#d1d9e0",
    "paper": "#ffffff",
    "raised": "#f6f8fa",
    "baseline": "#4f6d8f",
    "current": "#bc4c00",
    "bad": "#a40e26",
    "good": "#1a7f37",
    "unsure": "#7d4e00",
    "blue": "#0072b2",
    "purple": "#8250df",
    "teal": "#1b7c83",
    "brown": "#9a6700",
}
DARK = {
    "ink": "#e6edf3",
    "faint": "#9da7b1",
    "line": "#3d444d",
    "paper": "#0d1117",
    "raised": "#161b22",
    "baseline": "#8db4e0",
    "current": "#f0883e",
    "bad": "#ff8182",
    "good": "#56d364",
    "unsure": "#e3b341",
    "blue": "#58a6ff",
    "purple": "#bc8cff",
    "teal": "#39c5cf",
    "brown": "#d29922",
}


def style_of_colours() -> str:
    """Return the style sheet's part that names the colours and recolours pictures."""
    light, dark = (
        " ".join(f"--{name}: {colour};" for name, colour in colours.items())
        for colours in (LIGHT, DARK)
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
