"""Build the compiled routines: a Cython module, and a C file compiled for each kind of processor.

Binaries are portable: a kind is chosen at import (cython_ext/c/processors.c). The same sources give
the same bits with any compiler, so multiplications and additions are never fused or reordered.

Each build starts from the sources, in a folder of its own that is removed at its end. A build that
reused files of an earlier one would go by their times, which say nothing where files were copied,
and would install modules that the package no longer has.
"""

import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path("cython_ext")
FLAGS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"]
FLAGS += ["-fvisibility=hidden", "-Wno-psabi"]
AVX2 = ["-mavx2", "-mfma", "-mbmi", "-mbmi2"]
AVX512 = [*AVX2, *(f"-mavx512{part}" for part in ("f", "bw", "cd", "dq", "vl"))]
# The platform is the target in a cross-build.
X86 = sysconfig.get_platform().endswith(("-x86_64", "-amd64"))
KINDS = {"base": []} | ({"avx2": AVX2, "avx512": AVX512} if X86 else {})


class BuildRoutines(build_ext):
    """Compile c/routines.c once for each kind of processor, and link all with the module."""

    def build_extension(self, ext):
        """Build the module with the objects of all kinds."""
        with ThreadPoolExecutor() as pool:
            objects = pool.map(self.compiled, KINDS)
            ext.extra_objects = [name for names in objects for name in names]
        super().build_extension(ext)

    def compiled(self, kind):
        """Compile the routines of one kind; return the names of the object files."""
        return self.compiler.compile(
            [str(HERE / "c" / "routines.c")],
            output_dir=str(Path(self.build_temp) / kind),
            macros=[("PGM_KIND", kind)],
            extra_postargs=FLAGS + KINDS[kind],
        )


# It is removed when the interpreter ends.
FOLDER = TemporaryDirectory(prefix="pgmengine-build-")

setup(
    ext_modules=[
        Extension(
            "pgmengine._kernels",
            [str(HERE / name) for name in ("kernels.pyx", "c/processors.c", "c/orders.c")],
            include_dirs=[str(HERE), str(HERE / "c")],
            define_macros=[("PGM_X86", None)] if X86 else [],
            extra_compile_args=[*FLAGS, "-O2"],
        )
    ],
    cmdclass={"build_ext": BuildRoutines},
    options={
        "build": {"build_base": FOLDER.name},
        "build_ext": {"cython_c_in_temp": True, "force": True},
    },
)
