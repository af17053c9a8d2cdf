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

LAYERS = ("base", "records", "client")
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
        with self._one_translates:
            [module] = cythonize(
                [ext],
                include_path=["src"],
                compiler_directives=DIRECTIVES,
                build_dir=str(COMPILED / "c"),
                force=self.force or _is_older(COMPILED / "c" / Path(ext.sources[0]).with_suffix(".c"), "setup.py"),
                quiet=True,
            )
            if _is_older(self.get_ext_fullpath(ext.name), *module.sources):
                self._tell(ext)
        ext.sources = module.sources
        super().build_extension(ext)

    def _tell(self, ext: Extension) -> None:
        """For who waits: `make` shows it, pip shows it with -v."""
        self._begun += 1
        print(f"compiling {ext.name} ({self._begun} of at most {len(self.extensions)})", flush=True)


def _is_older(made: str | Path, *sources: str | Path) -> bool:
    """Whether something has to be made of its sources again, or for the first time."""
    if not os.path.exists(made):
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
