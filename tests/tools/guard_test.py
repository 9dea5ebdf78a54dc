"""tools/guard.py finds each violation in a tree made for it, and nothing in a clean tree."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

GUARD = Path(__file__).parents[2] / "tools" / "guard.py"
sys.path.insert(0, str(GUARD.parent))
sys.dont_write_bytecode = True
import guard  # noqa: E402


def with_tree(files, action):
    """What action(root) gives in a tree of {path: text}."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        for path, text in files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return action(root)


def run_script(root):
    done = subprocess.run([sys.executable, GUARD, root], capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


class GuardTest(unittest.TestCase):
    def violation(self, path, text, wanted):
        _, lines = with_tree({path: text}, guard.check_tree)
        self.assertEqual(len(lines), 1, lines)
        self.assertIn(path, lines[0])
        self.assertIn(wanted, lines[0])

    def clean(self, path, text):
        self.assertEqual(with_tree({path: text}, guard.check_tree), (1, []), path)

    def test_include_direction(self):
        order = ["server", "engine", "cache", "model", "dist", "kernels", "base"]
        for i, folder in enumerate(order):
            for j, other in enumerate(order):
                line = f'#include "{other}/part.h"\n'
                if i <= j:
                    self.clean(f"src/{folder}/part.cpp", line)
                else:
                    self.violation(f"src/{folder}/part.cpp", line, f"{folder} may not include")

    def test_text_needs_only_base(self):
        self.clean("src/text/part.cpp", '#include "base/part.h"\n#include "text/part.h"\n')
        for other in ["server", "engine", "cache", "model", "dist", "kernels"]:
            self.violation("src/text/part.cpp", f'#include "{other}/part.h"\n', "text may not")
        for other in ["engine", "model", "base"]:
            self.violation(f"src/{other}/part.h", '#include "text/part.h"\n', "may not include")
        self.clean("src/server/part.cpp", '#include "text/part.h"\n')

    def test_apps_may_include_all_and_the_public_header_only_base(self):
        self.clean("apps/run.cpp", '#include "text/part.h"\n#include "engine/part.h"\n')
        self.clean("include/hadal.h", '#include "base/status.h"\n')
        self.violation("include/hadal.h", '#include "model/step.h"\n', "include may not")
        self.violation("src/kernels/part.cpp", '#include "hadal.h"\n', "boundary")
        self.clean("src/engine/part.cpp", '#include "hadal.h"\n')

    def test_relative_include(self):
        self.violation("src/model/part.cpp", '#include "../engine/part.h"\n', "relative")

    def test_file_size(self):
        self.clean("src/model/part.cpp", "\n" * 800)
        self.violation("src/model/part.cpp", "\n" * 801, "801 lines, at most 800")
        self.violation("src/kernels/cpu/linear.cpp", "\n" * 801, "at most 800")
        for tuned in ["cpu/avx512_linear.cpp", "cpu/avx2_linear.cpp", "cuda/sm90_fp8_gemm.cu"]:
            self.clean(f"src/kernels/{tuned}", "\n" * 1200)
            self.violation(f"src/kernels/{tuned}", "\n" * 1201, "at most 1200")

    def test_line_length_counts_characters(self):
        self.clean("src/model/part.cpp", "// " + "é" * 97 + "\n")
        self.violation("src/model/part.cpp", "// " + "x" * 98 + "\n", "101 characters")
        self.violation("tools/part.py", "# " + "x" * 99 + "\n", "101 characters")

    def test_environment(self):
        for path in ["src/base/part.cpp", "apps/run.cpp", "include/hadal.h"]:
            for call in ['getenv("A")', 'std::getenv ("A")', 'secure_getenv("A")']:
                self.violation(path, f"auto a = {call};\n", "no environment variables")
        self.clean("src/dist/rendezvous.cpp", 'auto a = std::getenv("RANK");\n')
        self.clean("tests/base/part_test.cpp", 'auto a = std::getenv("HOME");\n')
        self.clean("src/base/part.cpp", "// getenv is not used here\n")

    def test_catch_all_names(self):
        for path in ["src/base/utils.h", "src/model/moe_helpers.cpp", "src/common/part.h"]:
            self.violation(path, "", "name the file after what it does")
        self.clean("src/base/uncommon_part.h", "")

    def test_json_in_headers(self):
        line = "#include <nlohmann/json.hpp>\n"
        self.violation("src/model/config.h", line, "nlohmann")
        self.violation("include/hadal.h", line, "nlohmann")
        self.clean("src/model/config.cpp", line)

    def test_exit_status(self):
        good, bad = {"src/base/part.h": "\n"}, {"src/base/utils.h": "\n" * 801}
        self.assertEqual(with_tree(good, run_script), (0, ["guard: 1 files, 0 violations"]))
        status, lines = with_tree(bad, run_script)
        self.assertEqual((status, len(lines), lines[2]), (1, 3, "guard: 1 files, 2 violations"))
        self.assertEqual(with_tree({"README.md": ""}, run_script)[0], 1)


if __name__ == "__main__":
    unittest.main()
