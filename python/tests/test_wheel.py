"""The wheel: what is in it, and its tag. The libraries are stand-ins for those of build-cudart."""
import base64
import hashlib
import importlib.util
import re
import shutil
import unittest
import zipfile
from pathlib import Path

import pinlane

from .samples import folder

PYTHON = Path(__file__).resolve().parent.parent


@unittest.skipUnless((PYTHON / "backend.py").exists(), "needs the source tree")
@unittest.skipUnless(shutil.which("strip"), "needs strip")
class Wheel(unittest.TestCase):
    def setUp(self):
        spec = importlib.util.spec_from_file_location("backend", PYTHON / "backend.py")
        self.backend = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.backend)
        self.folder = folder(self)
        true = shutil.which("true")  # any ELF file that `strip` takes
        for name in self.backend.NEEDED:
            shutil.copyfile(true, self.folder / name)
        shutil.copyfile(true, self.folder / "libother.so.1")
        (self.folder / "libcuda.so").symlink_to("libcuda.so.1")

    def test_the_wheel_has_all_modules_the_libraries_and_the_licences(self):
        wheel = self.backend.pack(self.folder, self.folder / "out")
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())
            info = f"pinlane-{pinlane.__version__}.dist-info"
            for path in (PYTHON / "pinlane").glob("*.py"):
                self.assertIn(f"pinlane/{path.name}", names)
            sources = [path for path in (PYTHON / "pinlane" / "operators").rglob("*")
                       if path.is_file()]
            self.assertIn("target", [path.name for path in sources])
            for path in sources:
                self.assertIn(path.relative_to(PYTHON).as_posix(), names)
            libraries = sorted(name[12:] for name in names if name.startswith("pinlane/lib/"))
            self.assertEqual(libraries, ["libcuda.so.1", "libcudart.so.12", "libcudart.so.13",
                                         "libother.so.1"])
            self.assertLessEqual({f"{info}/licenses/LICENSE-MIT", f"{info}/METADATA"}, names)
            self.assertIn(b"pinlane.pytest_plugin", archive.read(f"{info}/entry_points.txt"))
            for line in archive.read(f"{info}/RECORD").decode().splitlines():
                name, digest, size = line.rsplit(",", 2)
                names.remove(name)
                if digest:
                    data = archive.read(name)
                    made = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
                    self.assertEqual((digest, int(size)), (f"sha256={made.decode()}", len(data)))
        self.assertEqual(names, set(), "RECORD names every file")

    def test_the_tag_is_the_newest_glibc_that_a_library_names(self):
        for name in self.backend.libraries_in(self.folder):
            (self.folder / name).write_bytes(b"GLIBC_2.3 GLIBC_2.17\0GCC_4.2 GLIBC_2.4")
        self.assertIn("-manylinux_2_17_", self.backend.tag(self.folder))
        (self.folder / "libcuda.so.1").write_bytes(b"\0GLIBC_2.34\0GLIBC_2.9\0")
        self.assertIn("py3-none-manylinux_2_34_", self.backend.tag(self.folder))

    def test_missing_libraries_are_named(self):
        (self.folder / "libcuda.so.1").unlink()
        with self.assertRaisesRegex(SystemExit, "lacks libcuda.so.1: call scripts/build-cudart"):
            self.backend.pack(self.folder, self.folder)

    def test_the_version_is_that_of_the_crate(self):
        crate = (PYTHON.parent / "Cargo.toml").read_text()
        version = re.search(r'\[workspace\.package\]\s+version = "(.*)"', crate)[1]
        self.assertEqual((pinlane.__version__, self.backend.version()), (version, version))


if __name__ == "__main__":
    unittest.main()
