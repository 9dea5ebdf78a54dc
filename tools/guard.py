"""The house rules that a machine can check, over the tree given (default: this repository).

Include direction between the folders of src/, file and line length, no environment variables, no
catch-all file names, no JSON library in headers. Prints one line per violation; exit status 1.
"""
import re
import sys
from pathlib import Path

# A folder may include itself and the folders after it; text needs only base.
ORDER = ["server", "text", "engine", "cache", "model", "dist", "kernels", "base"]
ALLOWED = {name: set(ORDER[i:]) for i, name in enumerate(ORDER)}
for name in ORDER[2:]:
    ALLOWED[name].discard("text")
ALLOWED["text"] = {"text", "base"}
ALLOWED["include"] = {"base"}
ALLOWED["apps"] = set(ORDER)
BOUNDARY = {"server", "engine", "cache", "model", "apps"}  # may include hadal.h

CODE = {".h", ".cpp", ".cu", ".hip"}
TREES = ["src", "apps", "include", "tests", "bench", "fuzz", "tools"]
TUNED = re.compile(r"src/kernels/(cpu/(avx2|avx512|amx)_|cuda/|hip/)")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]')
GETENV = re.compile(r"\b(secure_)?getenv\s*\(")
CATCH_ALL = re.compile(r"(^|[_/])(utils?|helpers?|common)([_./]|$)")


def check_include(path, folder, target):
    """What is wrong with `#include "target"` in a file of `folder`, or nothing."""
    if path.endswith(".h") and target.startswith("nlohmann/"):
        return "a header includes nlohmann/json: keep it in one .cpp"
    if folder not in ALLOWED:
        return None
    first = target.split("/")[0]
    if first in (".", ".."):
        return f'include "{target}" from src/, not relative to the file'
    if first in ORDER and "/" in target and first not in ALLOWED[folder]:
        return f'{folder} may not include "{target}": the direction is {" -> ".join(ORDER)}'
    if target == "hadal.h" and folder not in BOUNDARY:
        return f"{folder} may not include hadal.h: it is the boundary above the model"
    return None


def check_file(root, file):
    path = file.relative_to(root).as_posix()
    parts = path.split("/")
    folder = parts[1] if parts[0] == "src" else parts[0]
    shipped = parts[0] in ("src", "apps", "include")
    if CATCH_ALL.search(path):
        yield f"{path}: name the file after what it does, not utils, helpers or common"
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    limit = 1200 if TUNED.match(path) else 800
    if len(lines) > limit:
        yield f"{path}: {len(lines)} lines, at most {limit}"
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}"
        if len(line) > 100:
            yield f"{where}: {len(line)} characters, at most 100"
        if shipped and not path.startswith("src/dist/rendezvous") and GETENV.search(line):
            yield f"{where}: no environment variables; make it an option"
        include = INCLUDE.match(line) if file.suffix in CODE else None
        message = check_include(path, folder, include[1]) if include else None
        if message:
            yield f"{where}: {message}"


def check_tree(root):
    """The number of files looked at, and what is wrong with them."""
    files = [root / "dev"] if (root / "dev").exists() else []
    for tree in TREES:
        files += [f for f in sorted((root / tree).rglob("*")) if f.suffix in CODE | {".py"}]
    return len(files), [p for file in files for p in check_file(root, file)]


if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
    count, problems = check_tree(root)
    print("\n".join(problems + [f"guard: {count} files, {len(problems)} violations"]))
    sys.exit(1 if problems or not count else 0)
