"""Small tasks with checkable answers: generated from a seed, written as JSONL."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canary.inputs.embedded import View

DATA_SEED = 20240607
ROWS = 2000

_NOUNS = (
    "apple arrow bell bird boat book bread bridge brush candle castle chair clock cloud coat "
    "corn crown desk door dream drum eagle earth engine fence field fire fish flag flower forest "
    "fox garden gate glass goat gold grape grass hammer hand harbor hat hill honey horse house "
    "ice island jar key king kite ladder lake lamp leaf lemon lion map market mirror moon mouse "
    "night nest ocean olive onion orange owl paper pear pencil piano plane planet plum pond queen "
    "rain ring river road robin rope rose sail salt sand ship shoe silver sky snow spoon star "
    "stone storm sugar sun table tent tiger tower train tree valley violin wagon wall water wheel "
    "wind window wolf wood"
)
WORDS = _NOUNS.split()


@dataclass(frozen=True)
class Task:
    """One task: a prompt and the only correct completion."""

    kind: str
    prompt: str
    answer: str


Record = dict[str, Any]
Maker = Callable[[random.Random], tuple[str, str]]


def _words(rng: random.Random, low: int, high: int) -> list[str]:
    return rng.sample(WORDS, rng.randint(low, high))


def _sum(rng: random.Random, top: int) -> tuple[str, int]:
    left, right = rng.randint(0, top), rng.randint(0, top)
    if rng.random() < 0.5:
        return f"{left} + {right}", left + right
    return f"{max(left, right)} - {min(left, right)}", abs(left - right)


def _arithmetic(rng: random.Random) -> tuple[str, str]:
    question, result = _sum(rng, 49)
    return f"{question} =", str(result)


def _reverse(rng: random.Random) -> tuple[str, str]:
    words = _words(rng, 1, 2)
    text = " ".join(words)
    return f"Write {text} backwards.", text[::-1]


def _letters(rng: random.Random) -> tuple[str, str]:
    word = rng.choice(WORDS)
    return f"Sort the letters of {word}.", "".join(sorted(word))


def _spell(rng: random.Random) -> tuple[str, str]:
    word = rng.choice(WORDS)
    return f"Spell {word}.", " ".join(word)


def _count(rng: random.Random) -> tuple[str, str]:
    words = _words(rng, 1, 80)
    return f"How many words are in this list?\n{' '.join(words)}", str(len(words))


def _range(rng: random.Random) -> tuple[str, str]:
    first = rng.randint(0, 20)
    last = first + rng.randint(1, 14)
    return f"Count from {first} to {last}.", " ".join(map(str, range(first, last + 1)))


def _repeat(rng: random.Random) -> tuple[str, str]:
    word, times = rng.choice(WORDS), rng.randint(2, 20)
    return f"Write {word} {times} times.", " ".join([word] * times)


def _copy(rng: random.Random) -> tuple[str, str]:
    text = " ".join(_words(rng, 2, 45))
    return f"Copy this line exactly as it stands, every word of it:\n{text}", text


def _order(rng: random.Random) -> tuple[str, str]:
    words = _words(rng, 2, 12)
    listed = "\n".join(f"- {word}" for word in words)
    return f"Put these words in alphabetical order, one a line.\n{listed}", "\n".join(sorted(words))


def _lengths(rng: random.Random) -> tuple[str, str]:
    words = _words(rng, 2, 9)
    answer = "\n".join(f"{word} {len(word)}" for word in words)
    return "Give the number of letters of each word.\n" + "\n".join(words), answer


def _sums(rng: random.Random) -> tuple[str, str]:
    sums = [_sum(rng, 9) for _ in range(rng.randint(2, 6))]
    listed = "\n".join(question for question, _ in sums)
    answer = "\n".join(f"{question} = {result}" for question, result in sums)
    return f"Work out each line.\n{listed}", answer


MAKERS: dict[str, Maker] = {
    "arithmetic": _arithmetic,
    "reverse": _reverse,
    "letters": _letters,
    "spell": _spell,
    "count": _count,
    "range": _range,
    "repeat": _repeat,
    "copy": _copy,
    "order": _order,
    "lengths": _lengths,
    "sums": _sums,
}


def task_stream(seed: int) -> Iterator[Task]:
    """Yield endless tasks of every kind in random order; the same ones for the same seed."""
    rng = random.Random(seed)
    kinds = list(MAKERS)
    while True:
        kind = rng.choice(kinds)
        prompt, answer = MAKERS[kind](rng)
        yield Task(kind, prompt, answer)


def make_tasks(rows: int = ROWS, seed: int = DATA_SEED) -> list[Task]:
    """Return the first `rows` tasks of the stream, each prompt at most three times."""
    seen: Counter[str] = Counter()
    tasks: list[Task] = []
    for task in task_stream(seed):
        if seen[task.prompt] >= 3:
            continue
        seen[task.prompt] += 1
        tasks.append(task)
        if len(tasks) == rows:
            break
    return tasks


def wrong_answer(task: Task, other: Task, rng: random.Random) -> str:
    """Return a wrong completion of another length: cut, extended, or the answer to `other`."""
    answer = task.answer
    kept = answer[: rng.randint(1, max(1, len(answer) - 1))].rstrip()
    ways = [f"{answer} {' '.join(_words(rng, 1, 6))}"]
    if len(kept) < len(answer):
        ways.append(kept)
    if len(other.answer) != len(answer):
        ways.append(other.answer)
    return rng.choice(ways)


def _user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def _assistant(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def view_records(view: View, tasks: list[Task], seed: int = DATA_SEED) -> list[Record]:
    """Return the records of one view, in the order of `tasks`.

    prompt_completion: prompt, completion, answer; preference: prompt, chosen, rejected;
    prompt_only: prompt, answer. `answer` is plain text, the others are lists of one message.
    """
    if view == "prompt_completion":
        return [
            {"prompt": _user(t.prompt), "completion": _assistant(t.answer), "answer": t.answer}
            for t in tasks
        ]
    if view == "prompt_only":
        return [{"prompt": _user(t.prompt), "answer": t.answer} for t in tasks]
    rng = random.Random(seed + 1)
    return [
        {
            "prompt": _user(task.prompt),
            "chosen": _assistant(task.answer),
            "rejected": _assistant(wrong_answer(task, rng.choice(tasks), rng)),
        }
        for task in tasks
    ]


VIEWS: tuple[View, ...] = ("prompt_completion", "preference", "prompt_only")


def write_data(folder: Path) -> list[Path]:
    """Write the three views as `<view>.jsonl` in `folder`; the same bytes every time."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = make_tasks()
    paths = []
    for view in VIEWS:
        path = folder / f"{view}.jsonl"
        lines = (
            json.dumps(record, separators=(",", ":"), ensure_ascii=False) + "\n"
            for record in view_records(view, tasks)
        )
        path.write_bytes("".join(lines).encode("utf-8"))
        paths.append(path)
    return paths
