"""Builds the compiled kernels; everything else is declared in pyproject.toml.

What was compiled stays below `build/kernel`, and only what changed is compiled again, whoever asks for it: `make`, `pip
install` and `pip wheel` share it.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import Cython
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

LAYERS = ("base", "wire", "records", "storage", "replication", "net", "broker", "client")
# What another Python or another Cython made is of no use.
COMPILED = Path("build", "kernel", f"{sysconfig.get_config_var('SOABI')}-cython-{Cython.__version__}")
DIRECTIVES = {"language_level": "3", "embedsignature": True}
# gcc cannot see that `fail` always raises, and so takes what follows it for a use of unset fields; what Cython makes
# for structs is not always used. Debugging information on generated C takes a quarter of the time, and helps nobody.
COMPILER_ARGUMENTS = ["-O3", "-g0", "-Wno-maybe-uninitialized", "-Wno-unused-function"]


class BuildKernels(build_ext):
    """Each module goes its way from Cython to a library, as many at once as there are cores."""

    def build_extensions(self) -> None:
        wanted_lib = self.build_lib
        self.build_lib, self.build_temp = str(COMPILED / "lib"), ""  # objects beside their C
        self._begun = 0
        self._one_translates = Lock()  # Cython keeps much in globals
        by_size = sorted(self.extensions, key=lambda each: os.path.getsize(each.sources[0]), reverse=True)
        with ThreadPoolExecutor(self.parallel or os.cpu_count()) as threads:
            list(threads.map(self.build_extension, by_size))
        if self.inplace_wanted:
            return  # setuptools copies to the sources what lies in build_lib
        for extension in self.extensions:
            built = Path(self.get_ext_fullpath(extension.name))
            target = Path(wanted_lib, built.relative_to(self.build_lib))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(built, target)
        self.build_lib = wanted_lib

    def run(self) -> None:
        self.inplace_wanted = self.inplace  # which setuptools hides while it builds
        super().run()

    def build_extension(self, ext: Extension) -> None:
        generated = COMPILED / "c" / Path(ext.sources[0]).with_suffix(".c")
        with self._one_translates:
            if self.force or _is_older(generated, *_sources_of(generated)):
                _translate(ext, _note_of(generated))
            if _is_older(self.get_ext_fullpath(ext.name), generated):
                self._tell(ext)
        ext.sources = [str(generated)]
        super().build_extension(ext)

    def _tell(self, ext: Extension) -> None:
        """For who waits: `make` shows it, pip shows it with -v."""
        self._begun += 1
        print(f"compiling {ext.name} ({self._begun} of at most {len(self.extensions)})", flush=True)


def _translate(ext: Extension, note: Path) -> None:
    """From Cython to C, with a note of what it was made from; without one, it is not trusted."""
    note.unlink(missing_ok=True)
    cythonize(
        [ext],
        include_path=["src"],
        compiler_directives=DIRECTIVES,
        build_dir=str(COMPILED / "c"),
        force=True,
        depfile=True,
        quiet=True,
    )


def _note_of(generated: Path) -> Path:
    return generated.with_name(f"{generated.name}.dep")


def _sources_of(generated: Path) -> list[str | Path]:
    """What a file of C was made from, of ours: declarations that come with Cython are as new as its last installation,
    which pip does for every build of its own."""
    note = _note_of(generated)
    if not note.exists():
        return [note]
    named = [line.strip(" \\") for line in note.read_text(encoding="utf-8").splitlines()[1:]]
    return ["setup.py", *(each for each in named if Path(each).parts[0] == "src")]


def _is_older(made: str | Path, *sources: str | Path) -> bool:
    """Whether something has to be made of its sources again, or for the first time; also when one is gone."""
    if not all(map(os.path.exists, (made, *sources))):
        return True
    return any(os.path.getmtime(made) < os.path.getmtime(each) for each in sources)


def extensions() -> list[Extension]:
    return [
        Extension(
            ".".join(source.with_suffix("").parts[1:]),
            [str(source)],
            extra_compile_args=COMPILER_ARGUMENTS,
            depends=["setup.py"],
        )
        for layer in LAYERS
        for source in sorted(Path("src", "barnabas", layer, "_kernel").glob("*.pyx"))
    ]


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildKernels})
