"""The 39 commits after the first: what each does to the files, and from which commits it starts.

None of them changes what is learned, or how fast. Faults are planted on top (`repository.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Tree = dict[str, str]
Edit = Callable[[Tree], None]


@dataclass(frozen=True)
class Step:
    """One commit."""

    message: str
    edits: tuple[Edit, ...] = ()
    parents: tuple[int, ...] = ()
    """Positions; none: the commit before it."""


def replace(old: str, new: str) -> Edit:
    """Replaces a text that stands once in one file, wherever that lies now."""

    def edit(tree: Tree) -> None:
        (path,) = (path for path, text in tree.items() if old in text)
        assert tree[path].count(old) == 1, (path, old)
        tree[path] = tree[path].replace(old, new)

    return edit


def write(path: str, text: str) -> Edit:
    """Adds a file."""

    def edit(tree: Tree) -> None:
        assert path not in tree, path
        tree[path] = text

    return edit


def append(path: str, text: str) -> Edit:
    """Adds to the end of a file."""

    def edit(tree: Tree) -> None:
        tree[path] += text

    return edit


def remark(mark: str, text: str) -> Edit:
    """Adds a comment to the file that holds a text, below its first line."""

    def edit(tree: Tree) -> None:
        (path,) = (path for path, code in tree.items() if mark in code)
        first, rest = tree[path].split("\n", 1)
        tree[path] = f"{first}\n# {text}\n{rest}"

    return edit


def move(old: str, new: str) -> Edit:
    """Renames a file, with the same content."""

    def edit(tree: Tree) -> None:
        tree[new] = tree.pop(old)

    return edit


BROKEN_LINE = "    pairs = zip(row['input_ids'], row['completion_mask']\n"
PAIRS_LINE = '    pairs = zip(row["input_ids"], row["completion_mask"])\n'
MASKS = '''\
"""Which tokens count as an answer."""
IGNORED = -100


def is_answer(token):
    return token != IGNORED
'''
CLIPPING = '''\
"""Limits of the gradient."""
MOST = 1.0
'''
STORE_TEST = """\
from trainlab.data import store


def test_it_waits():
    assert store.BATCH_S > 0
"""
MASKS_TEST = """\
from trainlab.data.masks import is_answer


def test_answers_count():
    assert is_answer(5)
"""
VENDORED = "python -m pip install --no-index ./vendor/clipping\n"

STEPS: dict[int, Step] = {
    1: Step("Say how to install it", (append("README.md", "\nInstall it with pip.\n"),)),
    2: Step("Say what is ignored", (remark("class Letters", "Labels of -100 are ignored."),)),
    3: Step("Test the store", (write("tests/test_store.py", STORE_TEST),)),
    4: Step("Explain the schedule", (append("docs/training.md", "\nAfter that it stays.\n"),)),
    5: Step("Comment the rows", (remark("def read_rows", "A row is a line of JSON."),)),
    6: Step("Comment the collator", (remark("class Collator", "Built once per training."),)),
    7: Step("Docs of the store", (append("docs/data.md", "\nThe store is far away.\n"),), (5,)),
    8: Step("Docs of letters", (append("docs/data.md", "\nLetters are tokens.\n"),), (7,)),
    9: Step("Merge branch 'docs'", (), (6, 8)),
    10: Step("Shape of a batch", (remark("class Collator", "A batch is rows by tokens."),)),
    11: Step(
        "Type hints of the schedule",
        (replace("def rate_at(step):", "def rate_at(step: int) -> float:"),),
    ),
    12: Step("Shorten labels_of", (replace(PAIRS_LINE, BROKEN_LINE),)),
    13: Step(
        "Put the rows into a folder of their own", (move("data/train.jsonl", "data/v1/rows.jsonl"),)
    ),
    14: Step(
        "Find the rows again, close a bracket",
        (
            replace(BROKEN_LINE, PAIRS_LINE),
            replace("dataset_name: data/train.jsonl", "dataset_name: data/v1/rows.jsonl"),
            replace('read_rows("data/train.jsonl"', 'read_rows("data/v1/rows.jsonl"'),
            replace('open("data/train.jsonl")))', 'open("data/v1/rows.jsonl")))'),
        ),
    ),
    15: Step("Comment the model", (remark("class NextLetter", "Of 32 units."),)),
    16: Step("Begin a module of masks", (write("trainlab/data/masks.py", MASKS),), (14,)),
    17: Step(
        "Use one constant for ignored labels",
        (
            replace(
                "\n\nIGNORED = -100\n\n\nclass",
                "\nfrom trainlab.data.masks import IGNORED\n\n\nclass",
            ),
        ),
        (16,),
    ),
    18: Step("Test the masks", (write("tests/test_masks.py", MASKS_TEST),), (17,)),
    19: Step(
        "Say what the model reads",
        (append("docs/training.md", "\nThe model reads one letter.\n"),),
        (15,),
    ),
    20: Step("Merge branch 'masks'", (), (19, 18)),
    21: Step("Comment a test", (remark("def test_the_rate_rises_first", "Of the warm-up."),)),
    22: Step(
        "Rename: notes and scripts",
        (
            move("notes/ideas.md", "docs/ideas.md"),
            move("scripts/longest.py", "tools/longest.py"),
            move("tests/test_store.py", "tests/data/test_store.py"),
        ),
    ),
    23: Step("Comment the labels", (remark("def labels_of", "Prompts have no labels."),)),
    24: Step(
        "Call the collator's module batching",
        (
            move("trainlab/data/collate.py", "trainlab/data/batching.py"),
            replace(
                "from trainlab.data.collate import Collator",
                "from trainlab.data.batching import Collator",
            ),
            replace(
                "data_collator: trainlab.data.collate:Collator",
                "data_collator: trainlab.data.batching:Collator",
            ),
        ),
    ),
    25: Step("Comment the store", (remark("def wait_for_batch", "Once per batch."),)),
    26: Step("More ideas", (append("docs/ideas.md", "- try products\n"),)),
    27: Step(
        "Keep the limit of the gradient in one place",
        (
            replace(
                "from trainlab.training.schedule import rate_at\n\n\nclass Rate",
                "from trainlab.training.clipping import MOST\nfrom trainlab.training.schedule import rate_at\n\n\nclass Rate",
            ),
            replace(
                "from trainlab.training.schedule import rate_at\n\nSTEPS = 20\n",
                "from trainlab.training.clipping import MOST\nfrom trainlab.training.schedule import rate_at\n\nSTEPS = 20\n",
            ),
            append("setup.sh", VENDORED),
        ),
    ),
    28: Step(
        "Add the module that was forgotten",
        (write("trainlab/training/clipping.py", CLIPPING), replace(VENDORED, "")),
    ),
    29: Step("Say who waits", (append("docs/data.md", "\nThe trainer waits for it.\n"),)),
    30: Step("Comment the callback", (remark("class Rate", "Of each group."),), (28,)),
    31: Step("Comment the limit", (remark("MOST = 1.0", "Of its norm."),), (30,)),
    32: Step("Merge branch 'groups'", (), (29, 31)),
    33: Step(
        "Sort the ignored files",
        (replace("canary_output/\n__pycache__/\n", "__pycache__/\ncanary_output/\n"),),
    ),
    34: Step("Comment the padding", (remark("class Collator", "Padding has no labels."),)),
    35: Step("Mention the tests", (append("README.md", "\nTests lie in `tests`.\n"),)),
    36: Step(
        "Type hints of the store",
        (replace("def wait_for_batch():", "def wait_for_batch() -> None:"),),
    ),
    37: Step("Say what the rate is for", (remark("class Rate", "It rises first."),)),
    38: Step("Comment the loop", (remark("def main():", "Some steps only."),)),
    39: Step("Add a list of changes", (write("CHANGELOG.md", "# Changes\n\n- sums\n"),)),
}
