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

STEPS: dict[int, Step] = {
    1: Step("Say how to install it", (append("README.md", "\nInstall it with pip.\n"),)),
    2: Step(
        "Name the ignored label in the text module",
        (
            replace("[-100] *", "[IGNORED] *"),
            replace(
                '"""Letters as tokens."""\nimport json\n',
                '"""Letters as tokens."""\nimport json\n\nIGNORED = -100\n',
            ),
        ),
    ),
    3: Step(
        "Test the store",
        (
            write(
                "tests/test_store.py",
                "from trainlab.data import store\n\n\ndef test_it_waits():\n    assert store.BATCH_S > 0\n",
            ),
        ),
    ),
    4: Step("Explain the schedule", (append("docs/training.md", "\nAfter that it stays.\n"),)),
    5: Step(
        "Close the file of rows",
        (
            replace(
                "    for line in open(path):\n        row = json.loads(line)\n",
                "    with open(path) as lines:\n        loaded = [json.loads(line) for line in lines]\n    for row in loaded:\n",
            ),
        ),
    ),
    6: Step(
        "Comment the collator",
        (replace("class Collator:\n", "# Built once, with the tokenizer.\nclass Collator:\n"),),
    ),
    7: Step("Docs of the store", (append("docs/data.md", "\nThe store is far away.\n"),), (5,)),
    8: Step("Docs of letters", (append("docs/data.md", "\nLetters are tokens.\n"),), (7,)),
    9: Step("Merge branch 'docs'", (), (6, 8)),
    10: Step(
        "Log the length of a batch",
        (
            replace(
                "import torch\n\nfrom trainlab.data import store\n",
                "import logging\n\nimport torch\n\nfrom trainlab.data import store\n",
            ),
            replace(
                "        shape = (len(rows), longest)\n",
                "        shape = (len(rows), longest)\n        logging.getLogger(__name__).debug('a batch of %s x %s', *shape)\n",
            ),
        ),
    ),
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
    15: Step(
        "Constants of the model",
        (
            replace("width=32)", "width=WIDTH)"),
            replace("from torch import nn\n", "from torch import nn\n\nWIDTH = 32\n"),
        ),
    ),
    16: Step("Begin a module of masks", (write("trainlab/data/masks.py", MASKS),), (14,)),
    17: Step(
        "Use one constant for ignored labels",
        (
            replace(
                "\nIGNORED = -100\n\n\n# Built",
                "\nfrom trainlab.data.masks import IGNORED\n\n\n# Built",
            ),
        ),
        (16,),
    ),
    18: Step(
        "Test the masks",
        (
            write(
                "tests/test_masks.py",
                "from trainlab.data.masks import is_answer\n\n\ndef test_answers_count():\n    assert is_answer(5)\n",
            ),
        ),
        (17,),
    ),
    19: Step(
        "Say what the model reads",
        (append("docs/training.md", "\nThe model reads one letter.\n"),),
        (15,),
    ),
    20: Step("Merge branch 'masks'", (), (19, 18)),
    21: Step(
        "Format the tests",
        (replace("assert rate_at(0) < rate_at(5)", "assert rate_at(0) < rate_at(5), 'it rises'"),),
    ),
    22: Step(
        "Rename: notes and scripts",
        (
            move("notes/ideas.md", "docs/ideas.md"),
            move("scripts/longest.py", "tools/longest.py"),
            move("tests/test_store.py", "tests/data/test_store.py"),
        ),
    ),
    23: Step(
        "Shape of a batch in a function",
        (
            replace(
                '        longest = max(len(row["input_ids"]) for row in rows)\n        shape = (len(rows), longest)\n',
                "        shape = shape_of(rows)\n",
            ),
            replace(
                "def labels_of(row):\n",
                'def shape_of(rows):\n    return len(rows), max(len(row["input_ids"]) for row in rows)\n\n\ndef labels_of(row):\n',
            ),
        ),
    ),
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
    25: Step(
        "Wait with a docstring",
        (
            replace(
                "def wait_for_batch():\n",
                'def wait_for_batch():\n    """Wait until a batch is here."""\n',
            ),
        ),
    ),
    26: Step("More ideas", (append("docs/ideas.md", "- try products\n"),)),
    27: Step(
        "Keep the limit of the gradient in one place",
        (
            replace(
                "from trainlab.training.schedule import rate_at\n\n\nclass Rate",
                "from trainlab.training import clipping\nfrom trainlab.training.schedule import rate_at\n\nMOST = clipping.MOST\n\n\nclass Rate",
            ),
            replace(
                "from trainlab.training.schedule import rate_at\n\nSTEPS = 20\n",
                "from trainlab.training.clipping import MOST\nfrom trainlab.training.schedule import rate_at\n\nSTEPS = 20\n",
            ),
            append("setup.sh", "python -m pip install --no-index ./vendor/clipping\n"),
        ),
    ),
    28: Step(
        "Add the module that was forgotten",
        (
            write("trainlab/training/clipping.py", CLIPPING),
            replace("python -m pip install --no-index ./vendor/clipping\n", ""),
        ),
    ),
    29: Step("Say who waits", (append("docs/data.md", "\nThe trainer waits for it.\n"),)),
    30: Step(
        "A loop over groups in a function",
        (
            replace(
                '        for group in optimizer.param_groups:\n            group["lr"] = rate_at(state.global_step)\n',
                "        set_rate(optimizer, rate_at(state.global_step))\n",
            ),
            append(
                "trainlab/training/callbacks.py",
                '\n\ndef set_rate(optimizer, rate):\n    for group in optimizer.param_groups:\n        group["lr"] = rate\n',
            ),
        ),
        (28,),
    ),
    31: Step(
        "Test the limit",
        (
            write(
                "tests/test_clipping.py",
                "from trainlab.training.clipping import MOST\n\n\ndef test_limit():\n    assert MOST > 0\n",
            ),
        ),
        (30,),
    ),
    32: Step("Merge branch 'groups'", (), (29, 31)),
    33: Step(
        "Sort the ignored files",
        (replace("canary_output/\n__pycache__/\n", "__pycache__/\ncanary_output/\n"),),
    ),
    34: Step(
        "Name the columns once",
        (
            replace(
                '    if "labels" in row:\n        return row["labels"]\n',
                "    if LABELS in row:\n        return row[LABELS]\n",
            ),
            replace("def shape_of(rows):\n", 'LABELS = "labels"\n\n\ndef shape_of(rows):\n'),
        ),
    ),
    35: Step("Mention the tests", (append("README.md", "\nTests lie in `tests`.\n"),)),
    36: Step(
        "Type hints of the store",
        (replace("def wait_for_batch():", "def wait_for_batch() -> None:"),),
    ),
    37: Step(
        "Say what the rate is for",
        (
            replace(
                '"""Sets the rate inside a trainer."""',
                '"""Sets the rate of each step inside a trainer."""',
            ),
        ),
    ),
    38: Step(
        "Rename a variable of the loop",
        (
            replace(
                "    for step, batch in zip(range(STEPS), batches):",
                "    for step, rows_together in zip(range(STEPS), batches):",
            ),
            replace("model.loss(batch)", "model.loss(rows_together)"),
        ),
    ),
    39: Step("Add a list of changes", (write("CHANGELOG.md", "# Changes\n\n- sums\n"),)),
}
