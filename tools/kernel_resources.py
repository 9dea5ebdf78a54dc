"""Compiles one kernel file with clang as HIP compiler and holds its registers and LDS to the limits
written beside each kernel: `// limits: vgprs N, lds BYTES` above `KL_KERNEL(...) name(`. No kernel
may spill or use scratch memory.

    kernel_resources.py SOURCE clang++ ... -c SOURCE

Runs the command with the compiler's resource remarks on. Prints one line per kernel; exit status 1
where the compiler fails, a limit is passed, or a kernel has none.
"""
import re
import subprocess
import sys
from pathlib import Path

REMARKS = "-Rpass-analysis=kernel-resource-usage"
FIELDS = {
    "VGPRs": "vgprs",
    "LDS Size [bytes/block]": "lds",
    "ScratchSize [bytes/lane]": "scratch",
    "VGPRs Spill": "spills",
}
LIMITS = re.compile(r"// limits: ([^\n]*)\n(?:template [^\n]*\n)?KL_KERNEL\([^)]*\)\s+(\w+)\(")
KERNEL = re.compile(r"KL_KERNEL\([^)]*\)\s+(\w+)\(")


def read_limits(source):
    """{kernel: {"vgprs": n, "lds": n}} of a kernel file, and the kernels that have no limits."""
    limits = {}
    for text, name in LIMITS.findall(source):
        pairs = (part.split() for part in text.split(","))
        limits[name] = {key: int(value) for key, value in pairs}
    return limits, sorted(set(KERNEL.findall(source)) - set(limits))


def read_usage(stderr):
    """[(mangled name, {"vgprs": n, ...})] in the order of the remarks."""
    usage = []
    for key, value in re.findall(r"remark:\s+([^:\n]+): (\S+) \[-Rpass", stderr):
        key = key.strip()
        if key == "Function Name":
            usage.append((value, {}))
        elif key in FIELDS and usage:
            usage[-1][1][FIELDS[key]] = int(value)
    return usage


def kernel_of(mangled, names):
    """The kernel of the file that a mangled name belongs to: names carry their length there."""
    return next((n for n in names if f"{len(n)}{n}" in mangled), None)


def check(source, stderr):
    """Lines to print and problems."""
    limits, missing = read_limits(source)
    lines, problems = [], [f"{name}: no limits are written beside it" for name in missing]
    for mangled, used in read_usage(stderr):
        name = kernel_of(mangled, limits)
        if not name:
            continue
        numbers = ", ".join(f"{key} {used.get(key, 0)}" for key in FIELDS.values())
        lines.append(f"{name}: {numbers}")
        allowed = {"scratch": 0, "spills": 0, **limits[name]}
        for key, most in allowed.items():
            if used.get(key, 0) > most:
                problems.append(f"{name}: {key} {used[key]}, at most {most} ({mangled})")
    if limits and not lines:
        problems.append("the compiler reported no kernel")
    return lines, problems


def main(argv):
    source, command = Path(argv[1]), argv[2:] + [REMARKS]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        sys.stderr.write(run.stderr)
        return 1
    lines, problems = check(source.read_text(encoding="utf-8"), run.stderr)
    print("\n".join(lines + [f"error: {source.name}: {p}" for p in problems]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
