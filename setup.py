"""Build the compiled routines: a Cython module, and units of C compiled for each kind of processor.

Binaries are portable: a kind is chosen at import (cython_ext/c/processors.c). The same sources give
the same bits with any compiler, so multiplications and additions are never fused or reordered.

Each build starts from the sources, in a folder of its own that is removed at its end. A build that
reused files of an earlier one would go by their times, which say nothing where files were copied,
and would install modules that the package no longer has.

Where the routines cannot be compiled, the package is installed without them and says so when it is
imported. PGMENGINE_PURE=1 leaves them out on purpose, and PGMENGINE_PURE=0 makes a failure of the
compiler an error.
"""

import gzip
import json
import os
import sys
import sysconfig
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.errors import CCompilerError, ExecError, PlatformError

HERE = Path("cython_ext")
# Debugging information would hold the folder of the build, and takes a third of the time.
FLAGS = ["-O2", "-g0", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"]
FLAGS += ["-fvisibility=hidden", "-Wno-psabi", "-Wno-unused-function"]
AVX2 = ["-mavx2", "-mfma", "-mbmi", "-mbmi2"]
AVX512 = [*AVX2, *(f"-mavx512{part}" for part in ("f", "bw", "cd", "dq", "vl"))]
# The platform is the target in a cross-build.
X86 = sysconfig.get_platform().endswith(("-x86_64", "-amd64"))
KINDS = {"base": []} | ({"avx2": AVX2, "avx512": AVX512} if X86 else {})
# The units of routines, the ones that take longest first, with flags of their own: -O3 is worth its
# time where it makes a routine faster (docs/decisions/base.md).
UNITS = {"sums": ["-O3"], "layers": ["-O3"], "draws": [], "rounds": []}

PURE = os.environ.get("PGMENGINE_PURE", "")

# Generated files and objects; it is removed when the interpreter ends.
FOLDER = TemporaryDirectory(prefix="pgmengine-build-")


def write_record(folder):
    """Write build.h, from which the module tells how it was built."""
    import Cython

    record = {
        "PGM_BUILD_FLAGS": " ".join(FLAGS),
        "PGM_BUILD_UNIT_FLAGS": "; ".join(" ".join([u, *flags]) for u, flags in UNITS.items()),
        "PGM_BUILD_KINDS": " ".join(KINDS),
        "PGM_BUILD_KIND_FLAGS": "; ".join(" ".join(flags) for flags in KINDS.values()),
        # From the environment, without the paths of the machine.
        "PGM_BUILD_ADDED_FLAGS": " ".join(
            word for word in os.environ.get("CFLAGS", "").split() if "/" not in word
        ),
        "PGM_BUILD_CYTHON": Cython.__version__,
        "PGM_BUILD_PLATFORM": sysconfig.get_platform(),
        "PGM_BUILD_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", ""),
    }
    lines = [f"#define {name} {json.dumps(value)}\n" for name, value in record.items()]
    (Path(folder) / "build.h").write_text("".join(lines), encoding="utf-8")


class BuildRoutines(build_ext):
    """Compile the units for each kind of processor, and link them with the Cython module."""

    def build_extension(self, ext):
        """Build the module; without it, the package is installed with plain routines."""
        try:
            self.link(ext, self.objects())
        except (CCompilerError, ExecError, PlatformError) as error:
            if PURE == "0":
                raise
            forget()
            print(
                f"{error}\n"
                "warning: the routines of pgmengine could not be compiled. The package "
                "is installed without them: it answers small questions slowly, in Python, and "
                "refuses others. Install a compiler (on Debian: gcc and python3-dev) and install "
                "again. PGMENGINE_PURE=0 makes this an error.",
                file=sys.stderr,
            )

    def objects(self):
        """Compile everything, as many files at a time as there are cores."""
        write_record(FOLDER.name)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = [pool.submit(self.module)]
            jobs += [pool.submit(self.unit, u, k) for u in UNITS for k in reversed(KINDS)]
            jobs += [pool.submit(self.compiled, name) for name in ("processors", "orders")]
            return [name for job in jobs for name in job.result()]

    def module(self):
        """Translate and compile the Cython module, which prepares the calls of routines."""
        from Cython.Compiler.Main import CompilationOptions, compile_single

        made = str(Path(FOLDER.name) / "kernels.c")
        options = CompilationOptions(output_file=made, include_path=[str(HERE)])
        if compile_single(str(HERE / "kernels.pyx"), options, "pgmengine._kernels").num_errors:
            raise CCompilerError("cython_ext/kernels.pyx has errors")
        return self.compiler.compile(
            [made],
            output_dir=self.build_temp,
            include_dirs=[str(HERE), str(HERE / "c"), FOLDER.name],
            extra_postargs=FLAGS,
        )

    def unit(self, unit, kind):
        """Compile a unit of routines for one kind; return the names of the object files."""
        return self.compiled(unit, kind, [("PGM_KIND", kind)], UNITS[unit] + KINDS[kind])

    def compiled(self, name, folder="", macros=(), flags=()):
        """Compile one file of C."""
        return self.compiler.compile(
            [str(HERE / "c" / f"{name}.c")],
            output_dir=str(Path(self.build_temp) / folder),
            macros=[*macros, *([("PGM_X86", None)] if X86 else [])],
            extra_postargs=[*FLAGS, *flags],
        )

    def link(self, ext, objects):
        """Link the module."""
        self.compiler.link_shared_object(
            objects, self.get_ext_fullpath(ext.name), export_symbols=self.get_export_symbols(ext)
        )


class Sources(sdist):
    """Archive the sources so that the bytes follow from the files and SOURCE_DATE_EPOCH alone."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, owner=None, group=None):
        """Write the archive; as setuptools does where SOURCE_DATE_EPOCH is not set."""
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if epoch is None or format != "gztar":
            return super().make_archive(base_name, format, root_dir, base_dir, owner, group)

        def plain(entry):
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = int(epoch)
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            return entry

        name = base_name + ".tar.gz"
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        with (
            open(name, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=int(epoch)) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for path in sorted([Path(base_dir), *Path(base_dir).rglob("*")]):
                archive.add(path, recursive=False, filter=plain)
        return name


def forget():
    """Remove the module of an earlier build from the sources, which would be used in its place."""
    Path("pgmengine", "_kernels" + sysconfig.get_config_var("EXT_SUFFIX")).unlink(missing_ok=True)


if PURE == "1":
    forget()

setup(
    ext_modules=[]
    if PURE == "1"
    else [Extension("pgmengine._kernels", [str(HERE / "kernels.pyx")], optional=PURE != "0")],
    cmdclass={"build_ext": BuildRoutines, "sdist": Sources},
    options={"build": {"build_base": FOLDER.name}, "build_ext": {"force": True}},
)
