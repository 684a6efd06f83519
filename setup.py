"""Builds the compiled kernels; all else is in pyproject.toml.

The kernels are optional: where no C compiler is found, their plain Python twins decide the same, slowly.
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = [
    "jumpmq.hashing._kernel",
    "jumpmq.amqp._kernel",
    "jumpmq.store._kernel",
    "jumpmq.store._worker",
    "jumpmq.queues._kernel",
]

setup(
    ext_modules=cythonize(
        [
            Extension(
                name,
                [f"src/{name.replace('.', '/')}.pyx"],
                include_dirs=["src/jumpmq/store"],
                depends=["src/jumpmq/store/crc32.h"],
                extra_compile_args=["-O3"],
                optional=True,
            )
            for name in KERNELS
        ],
        include_path=["src"],
        compiler_directives={"language_level": 3},
        build_dir="build",
    )
)
