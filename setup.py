"""Builds the compiled kernels of records and clients; everything else is declared in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [
            Extension(
                "barnabas.records._kernel.*",
                ["src/barnabas/records/_kernel/*.pyx"],
                # gcc cannot see that `fail` always raises, and so takes what follows it for a use of unset fields.
                extra_compile_args=["-O3", "-Wno-maybe-uninitialized"],
            ),
            Extension(
                "barnabas.client._kernel.*",
                ["src/barnabas/client/_kernel/*.pyx"],
                extra_compile_args=["-O3", "-Wno-maybe-uninitialized"],
            ),
        ],
        include_path=["src"],
        compiler_directives={"language_level": "3", "embedsignature": True},
    ),
)
