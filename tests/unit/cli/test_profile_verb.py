"""`canary profile`: what it prints, the examples of the documentation, and what it refuses."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from canary.errors import InputError, RecordError
from canary.record import jsonio
from canary.record.folder import RunFolder
from canary.record.profile import OPERATORS, Traced, Window, summarise_profile
from canary.record.profile_folder import keep_profile
from canary.record.types import RunRecord
from canary.report.profile import profile_text
from tests.unit.comparing import example
from tests.unit.profiler_events import CUDA, average, event

DOCS = Path(__file__).parents[3] / "docs" / "profiler.md"
STEPS = range(20, 25)

Sizes = dict[str, tuple[int, float, float]]
"""Calls a step, and microseconds a call: of the host, of the device."""

USUAL: Sizes = {
    "aten::mm": (452, 9.1, 61.0),
    "aten::_flash_attention_forward": (24, 14.2, 88.0),
    "aten::_flash_attention_backward": (24, 15.8, 210.0),
    "aten::mul": (610, 6.3, 4.1),
    "aten::copy_": (88, 7.7, 5.2),
    "aten::_local_scalar_dense": (2, 11.0, 0.0),
    "cudaLaunchKernel": (1510, 4.4, 0.0),
    "cudaMemcpyAsync": (6, 9.0, 0.0),
    "cudaStreamSynchronize": (2, 6200.0, 0.0),
}
SLOWER: Sizes = USUAL | {
    "aten::_local_scalar_dense": (98, 11.0, 0.0),
    "aten::mul": (610, 6.4, 4.2),
    "aten::sort": (24, 21.0, 480.0),
    "cudaMemcpyAsync": (102, 9.0, 0.0),
    "cudaStreamSynchronize": (98, 170.0, 0.0),
}
del SLOWER["aten::_flash_attention_forward"]


def traced(sizes: Sizes) -> Traced:
    """Five steps of 60 ms on a device."""
    many = len(STEPS)
    averages = [
        average(name, n * many, self_cpu=n * many * host, self_device=n * many * device)
        for name, (n, host, device) in sizes.items()
    ]
    busy = sum(n * many * device for n, _, device in sizes.values())
    copies = [
        event("Memcpy HtoD (Pinned -> Device)", 1000.0 * n, 1000.0 * n + 40, on=CUDA)
        for n in range(6 * many)
    ]
    kernels = [event("sm90_gemm", 31000.0, 31000.0 + busy, on=CUDA)]
    return Traced(tuple(STEPS), 60.0 * many, averages, [*copies, *kernels])


def run_of(folder: Path, name: str, sizes: Sizes | None) -> Path:
    """A run's folder; without sizes one that was not profiled."""
    made = RunFolder.create(folder, name)
    record: RunRecord = example().model_copy(update={"run_id": name, "owner": None})
    if sizes is not None:
        window = Window(20, 5, str(made.path / "profiler"), str(made.path / "profiler/trace.json"))
        Path(window.folder).mkdir()
        Path(window.trace).write_text("{}")
        document = jsonio.dumps(summarise_profile(traced(sizes)))
        (Path(window.folder) / OPERATORS).write_text(document)
        keep_profile(record, made.path, window, 100)
    made.write(record)
    return made.path


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs lie, as they are named in the documentation."""
    monkeypatch.chdir(tmp_path)
    return Path("canary_output")


def held(marker: str, text: str) -> None:
    """The example of the documentation is what the code prints; UPDATE_GOLDEN=1 writes it."""
    pattern = re.compile(rf"(<!-- {marker}: \S+ -->\n```text\n)(.*?)(```\n)", re.DOTALL)
    docs = DOCS.read_text(encoding="utf-8")
    found = pattern.search(docs)
    assert found is not None, marker
    if os.environ.get("UPDATE_GOLDEN"):
        DOCS.write_text(docs[: found.start(2)] + text + docs[found.end(2) :], encoding="utf-8")
        return
    assert found[2] == text


def test_the_first_example_of_the_documentation_is_what_is_printed(runs: Path) -> None:
    held("example", profile_text(run_of(runs, "RUN", USUAL), None, "text", 8))


def test_the_second_example_is_the_end_of_what_is_printed(runs: Path) -> None:
    base = run_of(runs, "BASE", USUAL)
    text = profile_text(run_of(runs, "RUN", SLOWER), base, "text", 8)
    held("example against", text[text.index("Operators against") :])


def test_markdown_has_a_table_and_no_foreign_markup(runs: Path) -> None:
    odd: Sizes = USUAL | {"evil|`<!-- x": (1, 50_000.0, 50_000.0)}
    text = profile_text(run_of(runs, "RUN", odd), None, "markdown", 2)
    assert "| operator | calls per step | ms per step | share |" in text
    assert "<!-- x" not in text
    assert "evil\\|" in text


def test_a_run_without_a_profile_is_refused_with_the_lines_to_add(runs: Path) -> None:
    plain = run_of(runs, "PLAIN", None)
    with pytest.raises(InputError) as caught:
        profile_text(plain, None, "text", 3)
    assert str(caught.value) == (
        "PLAIN has no profile: profiling was off (put `profiler: {enabled: true, start_step: 20, "
        "num_steps: 5}` into its config, or run it with --set profiler.enabled=true)"
    )


def test_against_a_run_without_a_profile_the_counts_of_the_looks_are_compared(runs: Path) -> None:
    text = profile_text(run_of(runs, "RUN", USUAL), run_of(runs, "PLAIN", None), "text", 3)
    assert "calls in one step of each look, without times: the baseline was not profiled" in text
    assert "No operator differs" in text


@pytest.mark.parametrize("document", [{"operators": [{"kind": "operator"}]}, {"operators": [3]}])
def test_a_broken_table_is_named(runs: Path, document: dict[str, Any]) -> None:
    run = run_of(runs, "RUN", USUAL)
    text = jsonio.dumps({"schema_version": 1, **document})
    (run / "profiler" / OPERATORS).write_text(text)
    with pytest.raises(RecordError, match=r"operators\.json is not a table of operators"):
        profile_text(run, None, "text", 3)
