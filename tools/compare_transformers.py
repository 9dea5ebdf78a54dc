"""Decode speed at batch 1 against Hugging Face transformers on the CPU, both in the same run.

For tiny-v4 and a 200 M parameter V4 it times transformers in fp32 and bf16 with each of its expert
implementations, keeps its best repetition of its best variant, times `hadal bench latency` on the
same shape, and prints the ratio. tiny-v4 is the real checkpoint, dequantised by transformers itself
at load; the 200 M model has random weights of the config's shapes on both sides (a decode step does
the same work whatever the values are). Installs torch and transformers in build/hf-venv.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import time
import venv
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / "build" / "hf-venv"
PACKAGES = ["torch", "transformers>=5.8", "accelerate"]
MODELS = {"tiny-v4": ROOT / "models/tiny-v4", "v4-200m": ROOT / "bench/configs/v4-200m.json"}


def inside_venv():
    """Makes the packages importable: runs this script again under build/hf-venv if they are not."""
    try:
        import accelerate  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        python = VENV / "bin" / "python"
        if Path(sys.prefix) == VENV:
            sys.exit(f"{VENV} lacks {', '.join(PACKAGES)}: remove the folder and run again")
        if not python.exists():
            venv.create(VENV, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        os.execv(python, [str(python), *sys.argv])


def load(path, dtype, experts):
    """The transformers model of a checkpoint folder, or of a config.json with random weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, FineGrainedFP8Config

    if path.is_dir():
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, device_map="cpu", experts_implementation=experts,
            quantization_config=FineGrainedFP8Config(dequantize=True))
        return model.eval()
    values = json.loads(path.read_text())
    values.pop("quantization_config")
    config = AutoConfig.for_model(**values)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        config, dtype=dtype, experts_implementation=experts).eval()
    # Hash layers route by a table that is zero until a checkpoint fills it: K copies of expert 0.
    for name, table in model.named_buffers():
        if name.endswith("tid2eid"):
            rows = [random.sample(range(config.n_routed_experts), table.shape[1])
                    for _ in range(table.shape[0])]
            table.copy_(torch.tensor(rows))
    return model


def decode_rate(model, prompt, tokens, repeat):
    """Tokens/s of `tokens` greedy steps after a prefill, the best of `repeat` after a warm-up."""
    import torch

    best = 0.0
    with torch.inference_mode():
        for attempt in range(repeat + 1):
            out = model(input_ids=torch.tensor([prompt]), use_cache=True, logits_to_keep=1)
            cache, count = out.past_key_values, 8 if attempt == 0 else tokens
            begin = time.perf_counter()
            for _ in range(count):
                ids = out.logits[:, -1].argmax(-1, keepdim=True)
                out = model(input_ids=ids, past_key_values=cache, use_cache=True)
            out.logits[:, -1].argmax(-1).item()
            if attempt:
                best = max(best, count / (time.perf_counter() - begin))
    return best


def measure_transformers(path, options):
    import torch

    torch.set_num_threads(options.threads)
    rates = {}
    for name, dtype in {"fp32": torch.float32, "bf16": torch.bfloat16}.items():
        for experts in ("eager", "grouped_mm", "batched_mm"):
            try:
                model = load(path, dtype, experts)
                prompt = [random.randrange(3, model.config.vocab_size)
                          for _ in range(options.prompt)]
                rate = decode_rate(model, prompt, options.tokens, options.repeat)
            except (RuntimeError, ValueError, NotImplementedError) as error:
                print(f"  transformers {name} {experts}: {str(error).splitlines()[0]}")
                continue
            rates[f"{name}, {experts} experts"] = rate
            print(f"  transformers {name}, {experts} experts: {rate:.1f} tokens/s", flush=True)
    best = max(rates, key=rates.get)
    return best, rates[best], rates


def measure_hadal(path, options):
    """Median decode rate that `hadal bench latency` reports, in release numerics."""
    model = [str(path)] if path.is_dir() else ["--dummy", str(path)]
    command = [options.hadal, "bench", "latency", *model, "--threads", str(options.threads),
               "--prompt-len", str(options.prompt), "--output-len", str(options.tokens),
               "--repeat", str(options.repeat), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)["decode_tokens_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hadal", default=str(ROOT / "build/hadal"), help="the program")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--prompt", type=int, default=32, help="prompt tokens")
    parser.add_argument("--tokens", type=int, default=64, help="decoded tokens")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only-transformers", action="store_true")
    parser.add_argument("--json", type=Path, help="write all rates here")
    options = parser.parse_args()
    inside_venv()
    import torch
    import transformers

    warnings.simplefilter("ignore")  # past_key_values gets a new name in later releases
    random.seed(0)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, "
          f"{options.threads} threads, prompt {options.prompt}, {options.tokens} tokens, "
          f"best of {options.repeat} (hadal: median)")
    report = {}
    for name in options.models:
        print(name)
        best, theirs, rates = measure_transformers(MODELS[name], options)
        report[name] = {"transformers": rates, "transformers_best": best}
        if options.only_transformers:
            continue
        ours = measure_hadal(MODELS[name], options)
        report[name] |= {"hadal": ours, "ratio": ours / theirs}
        print(f"  hadal: {ours:.1f} tokens/s = {ours / theirs:.1f} x transformers ({best})")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
