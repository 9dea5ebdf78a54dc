"""tools/kernel_resources.py on remarks as clang prints them."""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import kernel_resources

SOURCE = """
// limits: vgprs 64, lds 256
template <class T>
KL_KERNEL(kThreads) norm_kernel(Args<T> a) {

// limits: vgprs 32, lds 0
KL_KERNEL(256) copy_kernel(Args a) {
"""


def remarks(name, vgprs, lds=0, scratch=0, spills=0):
    fields = [("Function Name", name), ("    TotalSGPRs", 30), ("    VGPRs", vgprs),
              ("    AGPRs", 0), ("    ScratchSize [bytes/lane]", scratch), ("    SGPRs Spill", 0),
              ("    VGPRs Spill", spills), ("    LDS Size [bytes/block]", lds)]
    line = "a/b.cu.h:36:1: remark: {}: {} [-Rpass-analysis=kernel-resource-usage]\n"
    return "".join(line.format(key, value) for key, value in fields)


NORM = "_ZN5hadal3hip11norm_kernelIfEEvNS0_4ArgsIT_EE"
COPY = "_ZN5hadal3hip11copy_kernelENS0_4ArgsE"


class KernelResources(unittest.TestCase):
    def problems(self, stderr, source=SOURCE):
        return kernel_resources.check(source, stderr)[1]

    def test_within_the_limits(self):
        lines, problems = kernel_resources.check(SOURCE, remarks(NORM, 64, 256) + remarks(COPY, 9))
        self.assertEqual(problems, [])
        self.assertEqual(lines, ["norm_kernel: vgprs 64, lds 256, scratch 0, spills 0",
                                 "copy_kernel: vgprs 9, lds 0, scratch 0, spills 0"])

    def test_each_limit(self):
        self.assertIn("vgprs 65, at most 64", self.problems(remarks(NORM, 65))[0])
        self.assertIn("lds 257, at most 256", self.problems(remarks(NORM, 1, 257))[0])
        self.assertIn("scratch 4, at most 0", self.problems(remarks(COPY, 1, 0, 4))[0])
        self.assertIn("spills 1, at most 0", self.problems(remarks(COPY, 1, 0, 0, 1))[0])

    def test_a_kernel_without_limits(self):
        source = SOURCE + "KL_KERNEL(64) new_kernel(Args a) {\n"
        self.assertEqual(self.problems(remarks(NORM, 1), source),
                         ["new_kernel: no limits are written beside it"])

    def test_no_report(self):
        self.assertEqual(self.problems(""), ["the compiler reported no kernel"])


if __name__ == "__main__":
    unittest.main()
