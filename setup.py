"""What pyproject.toml cannot say: the wheel brings manual pages, and with KAFKAPY_COMPILE=1 modules compiled by mypyc.

The pages are made from the parsers while the wheel is built (kafkapy/cli/manual.py), which needs typer. `make compiled`
builds the other wheel (tools/compiled.py). Without the variable nothing is compiled, no compiler is needed. The modules
are those of packaging/compiled_modules.txt; kafkapy/compiled.py reads the manifest that is written here.
KAFKAPY_OPT_LEVEL is the C compiler's: 0 to 3.
"""

import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import setup  # before distutils, which it brings

from distutils.command.install_data import install_data  # isort: skip

MODULES = Path("packaging/compiled_modules.txt")
MANIFEST = "kafkapy/compiled.txt"
PAGES = "share/man/man1"
"""In the environment that the wheel is installed into."""


def listed_modules() -> list[str]:
    lines = MODULES.read_text(encoding="utf-8").splitlines()
    return [f"kafkapy/{line}" for line in lines if line and not line.startswith("#")]


def manifest() -> str:
    """Return a line per compiled module: its source's CRC-32 and size, its path."""
    sources = [(path, Path(path).read_bytes()) for path in listed_modules()]
    return "".join(f"{zlib.crc32(source)} {len(source)} {path}\n" for path, source in sources)


def in_parallel(compile_all: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """Return what compiles the sources of an extension on all cores: most of them belong to one."""

    def compile_each(sources: list[str], **options: Any) -> list[str]:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return [
                built for each in pool.map(lambda source: compile_all([source], **options), sources) for built in each
            ]

    return compile_each


def compiling() -> dict[str, Any]:
    """Return the arguments of `setup` that compile the listed modules."""
    from mypyc.build import mypycify
    from setuptools.command.build_ext import build_ext

    class BuildCompiled(build_ext):
        def run(self) -> None:
            if self.inplace or self.editable_mode:
                raise SystemExit("KAFKAPY_COMPILE=1 makes wheels only: a checkout stays interpreted")
            super().run()
            (Path(self.build_lib) / MANIFEST).write_text(manifest(), encoding="utf-8")

        def build_extensions(self) -> None:
            self.compiler.compile = in_parallel(self.compiler.compile)
            super().build_extensions()

    options = ["--config-file", "pyproject.toml", "--no-warn-unused-ignores", "--explicit-package-bases"]
    modules = mypycify(
        [*options, *listed_modules()], opt_level=os.environ.get("KAFKAPY_OPT_LEVEL", "2"), multi_file=True
    )
    return {"ext_modules": modules, "cmdclass": {"build_ext": BuildCompiled}}


def is_compiling() -> bool:
    """Whether modules are to be compiled: not in the runs of pip that only ask for the metadata."""
    return os.environ.get("KAFKAPY_COMPILE") == "1" and not {"egg_info", "dist_info"} & set(sys.argv)


class InstallPages(install_data):
    """Installs a manual page for each command."""

    def run(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            here = os.path.dirname(os.path.abspath(__file__))
            subprocess.run([sys.executable, "-m", "kafkapy", "man", "--to", directory], cwd=here, check=True)
            self.data_files = [(PAGES, sorted(map(str, Path(directory).iterdir())))]
            super().run()


options = compiling() if is_compiling() else {}
commands = {"install_data": InstallPages, **options.pop("cmdclass", {})}
setup(data_files=[(PAGES, [])], cmdclass=commands, **options)
