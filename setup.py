"""Builds the compiled kernels; all else is in pyproject.toml.

The broker needs its kernels, so a C compiler builds them; those kernels that Spark's workers use are optional, as
their reference implementations in Python give the same results, slowly.

With JUMPMQ_KERNELS_BUILT=1 nothing is compiled. `scripts/install` sets it for pip's editable install, which compiles in
a temporary directory, and would compile again what `setup.py build_ext --inplace` has left in `src`.
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = [
    "jumpmq.hashing._kernel",
    "jumpmq.amqp._kernel",
    "jumpmq.store._kernel",
    "jumpmq.store._worker",
    "jumpmq.queues._kernel",
    "jumpmq.queues._lanes",
]

FOR_SPARK = {"jumpmq.hashing._kernel", "jumpmq.amqp._kernel"}

OPTIMIZE = [] if "-O0" in os.environ.get("CFLAGS", "").split() else ["-O3"]
"""Nothing where a build is to be quick: of options that contradict each other the last one counts."""

setup(
    ext_modules=cythonize(
        [
            Extension(
                name,
                [f"src/{name.replace('.', '/')}.pyx"],
                include_dirs=["src/jumpmq/store"],
                depends=["src/jumpmq/store/crc32.h"],
                extra_compile_args=OPTIMIZE,
                optional=name in FOR_SPARK,
            )
            for name in KERNELS
            if os.environ.get("JUMPMQ_KERNELS_BUILT") != "1"
        ],
        include_path=["src"],
        compiler_directives={"language_level": 3},
        build_dir="build",
    ),
    options={"build_ext": {"parallel": os.cpu_count()}},
)
