"""What is run in an environment to see that an extra works: commands, and what they must say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BIN = "BIN"
"""Stands for the folder of the environment's programs."""

RECORDED = "SOURCE/baselines/examples"
PRESETS = "SOURCE/tests/data/imports/presets"

NO_TORCH = """
import importlib.util, sys
import canary.cli, canary.gate.report_job, canary.record.folder
from canary.compare.stats import compare_to_baseline, load_metrics
from canary.compare.thresholds import SMOKE_THRESHOLDS
current, baseline = (load_metrics(name) for name in sys.argv[1:])
print(compare_to_baseline(current, baseline, SMOKE_THRESHOLDS).verdict)
installed = importlib.util.find_spec("torch") is not None
print("loaded:", "torch" in sys.modules, "installed:", installed)
"""

SERVED = """
import re, subprocess, sys, urllib.request
canary, folder = sys.argv[1:]
words = [canary, "serve", folder, "--port", "0"]
with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
    address = None
    while address is None:
        line = server.stdout.readline()
        if not line:
            sys.exit("canary serve ended")
        address = re.search(r"http://[\\w.:/?=&-]+", line)
    page = urllib.request.urlopen(address[0], timeout=60).read().decode()
    server.terminate()
print("served", "maxtext" in page)
"""


@dataclass(frozen=True)
class Trial:
    """A command, its exit code, and a pattern of its output. SOURCE is the exported commit."""

    words: tuple[str, ...]
    says: str
    code: int = 0

    @property
    def name(self) -> str:
        """What to call it: a program is too long to show."""
        return " ".join("PROGRAM" if "\n" in word else word for word in self.words[:3])

    def command(self, programs: Path, source: Path) -> list[str]:
        """Return the words for one environment."""
        first, *others = self.words
        filled = [
            word.replace("SOURCE", str(source)).replace(BIN, str(programs)) for word in others
        ]
        return [str(programs / first), *filled]


@dataclass(frozen=True)
class Extra:
    """What an extra needs and how it is tried."""

    trials: tuple[Trial, ...] = ()
    torch: bool = False
    """Whether it is only of use beside torch; then it is tried in the environment that trains."""
    not_run: str = ""
    """Why it is not tried; empty if it is."""
    ruptures: bool = False
    """Whether it needs ruptures."""

    def missing_from(self, python: tuple[int, ...]) -> str:
        """Return why a Python cannot have its tested packages; empty if it can."""
        if self.ruptures and python >= (3, 14):
            return "ruptures 1.1.10 is not for Python 3.14; pip compiles 1.1.9 instead"
        return ""


def _canary(*words: str, says: str, code: int = 0) -> Trial:
    return Trial(("canary", *words), says, code)


def _python(program: str, *words: str, says: str) -> Trial:
    return Trial(("python", "-c", program, *words), says)


EXPLAINED = (f"{RECORDED}/explained/current.json", f"{RECORDED}/explained/baseline.json")
EQUAL = (f"{RECORDED}/sft_smoke_again.json", f"{RECORDED}/sft_smoke.json")

CORE = (
    _canary("--version", says=r"^rlhf-canary VERSION$"),
    _canary("--help", says=r"^Commands:"),
    _canary("compare", *EQUAL, says=r"^(Pass|Learns the same)"),
    _canary("compare", *EXPLAINED, says=r"^Regression", code=1),
    _canary("explain", *EXPLAINED, says=r"Likely cause: kernel"),
    _canary("init-config", "canary.yaml", "--type", "sft", says=r"wrote canary\.yaml"),
    _canary("config", "show", "canary.yaml", says=r"training_type: sft"),
    _canary("env", says=r"^python +\d"),
)
WITHOUT_TORCH = (
    _python(NO_TORCH, *EXPLAINED, says=r"^regression\nloaded: False installed: False$"),
    _canary("demo", says=r'pip install "rlhf-canary\[train\]"', code=2),
)
DEMO = _canary("demo", says=r"(?s)(Pass|Learns the same): .*Regression: 0 EOS")
"""On a busy machine the speed of the healthy change may stay undecided."""
REPORT = _canary("report", *EXPLAINED, "-o", "page.html", says=r"wrote page\.html")

EXTRAS = {
    "train": Extra((DEMO,), torch=True),
    "hub": Extra(
        (_python("import huggingface_hub, canary.gate.prefetch; print('here')", says="here"),)
    ),
    "import": Extra(
        (
            _canary("import", f"{PRESETS}/lightning", "-o", "imported", says="13 metrics"),
            _canary("list", "imported", says="completed"),
        )
    ),
    "history": Extra(
        (
            _canary("save-baseline", EQUAL[0], "history", says="saved"),
            _canary("save-baseline", EQUAL[1], "history", says="saved"),
            _canary("history", "history", says="Too few runs to judge"),
        ),
        ruptures=True,
    ),
    "report": Extra((REPORT,), ruptures=True),
    "serve": Extra(
        (
            _canary("import", f"{PRESETS}/maxtext/metrics.jsonl", "-o", "runs", says="named"),
            _python(SERVED, f"{BIN}/canary", "runs", says="served True"),
        ),
        ruptures=True,
    ),
    "quantization": Extra(
        (_python("import bitsandbytes; print(bitsandbytes.__version__)", says=r"\d"),), torch=True
    ),
    "gil": Extra((_python("import gilknocker; print('here')", says="here"),)),
    "liger": Extra(not_run="its kernels need Triton and a GPU"),
    "pytest": Extra((Trial(("python", "-m", "pytest", "--fixtures", "-q"), r"(?m)^canary\b"),)),
    "ray": Extra(
        (
            _python(
                "import canary.matrix.launchers.ray; from ray import job_submission; print('here')",
                says="here",
            ),
        )
    ),
    "slurm": Extra(
        (_python("import submitit, canary.matrix.launchers.slurm; print('here')", says="here"),)
    ),
    "docs": Extra(not_run="make docs installs it"),
    "dev": Extra(not_run="make test installs it"),
}
"""Each extra of pyproject.toml."""

LIGHT = [name for name, extra in EXTRAS.items() if not (extra.torch or extra.not_run)]
"""Extras that need no torch."""
