"""Builds the compiled kernels; everything else is declared in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = ("base", "records", "client")

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"barnabas.{layer}._kernel.*",
                [f"src/barnabas/{layer}/_kernel/*.pyx"],
                # gcc cannot see that `fail` always raises, and so takes what follows it for a use of unset fields.
                extra_compile_args=["-O3", "-Wno-maybe-uninitialized"],
            )
            for layer in KERNELS
        ],
        include_path=["src"],
        compiler_directives={"language_level": "3", "embedsignature": True},
    ),
)
