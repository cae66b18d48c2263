"""The command `executorch-webgpu`: export by a recipe, list recipes, inspect a program, run or profile a model."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from executorch_webgpu.errors import ExecuTorchWebGPUError, FileError
from executorch_webgpu.recipes import RECIPES, ExportOptions, RecipeError, find


def show_progress(text: str, seconds: float | None) -> None:
    """One line a step, on stderr: stdout stays for results."""
    if seconds is None:
        print(f"executorch-webgpu: {text}", file=sys.stderr, flush=True)
    else:
        print(f"executorch-webgpu: {text}: {seconds:.1f} s", file=sys.stderr, flush=True)


@contextmanager
def quiet() -> Iterator[None]:
    """Hides warnings of torch and executorch about matters of their own; ETWGPU_VERBOSE=1 shows them."""
    if os.environ.get("ETWGPU_VERBOSE"):
        yield
        return
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def check_writable(folder: Path) -> None:
    """Raises FileError where `folder` cannot be made or written: before minutes of work, not after them."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise FileError(f"cannot write to {folder}: {nearest} is no folder")
    # Tried, not asked: root may write everywhere, as os.access says, but not to /proc or to a full disk.
    missing = [place for place in (folder, *folder.absolute().parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"0")
    except OSError as error:
        raise FileError(f"cannot write to {folder}: {error.strerror}") from None
    finally:
        for place in missing:  # what comes in between may fail
            with suppress(OSError):
                place.rmdir()


def export(arguments: argparse.Namespace) -> int:
    """`executorch-webgpu export RECIPE --out DIR …`"""
    recipe = find(arguments.recipe)
    check_writable(arguments.out)
    options = ExportOptions(
        source=arguments.source,
        bits=arguments.bits,
        group=arguments.group,
        symmetric=arguments.symmetric,
        embedding_bits=arguments.embedding_bits,
        head_bits=arguments.head,
        max_len=arguments.max_len,
        max_call=arguments.max_call,
        logits=arguments.logits,
        random_weights=arguments.random_weights or None,
        structure_only=arguments.structure_only or None,
    )
    with quiet():
        from executorch_webgpu import model_folder

        path = model_folder.write(recipe, options, arguments.out, show_progress)
    print(f"{path} {path.stat().st_size:,} bytes")
    return 0


def recipes(arguments: argparse.Namespace) -> int:
    """`executorch-webgpu recipes`"""
    del arguments
    width = max(map(len, RECIPES))
    for recipe in RECIPES.values():
        print(f"{recipe.name:{width}}  {recipe.task:20}  {recipe.summary}")
    return 0


def run(arguments: argparse.Namespace) -> int:
    """`executorch-webgpu run FOLDER PROMPT …`: the text goes to stdout as it comes, figures to stderr."""
    from executorch_webgpu.generation import TextGenerator

    options = {"precision": arguments.precision, "check_values": arguments.check_values}
    with TextGenerator(
        arguments.folder, arguments.device, variant=arguments.variant, adapters=arguments.adapter, **options
    ) as model:
        prompt = arguments.prompt
        if model.text_model.has_template and not arguments.raw:
            prompt = [{"role": "user", "content": prompt}]
        try:
            result = model.generate(
                prompt,
                on_token=lambda token: print(token.text, end="", flush=True),
                max_tokens=arguments.max_tokens,
                temperature=arguments.temperature,
                top_p=arguments.top_p,
                seed=arguments.seed,
            )
        finally:
            print(flush=True)
    decoded = max(len(result.ids) - 1, 0)
    rate = f", {decoded / result.decode_seconds:.1f} tokens/s" if decoded else ""
    show_progress(
        f"{result.prompt_tokens} tokens read in {result.prefill_seconds:.1f} s, {len(result.ids)} generated{rate}"
        + (", cut off" if result.finish_reason == "length" else ""),
        None,
    )
    return 0


def profile(arguments: argparse.Namespace) -> int:
    """`executorch-webgpu profile FOLDER …`"""
    from executorch_webgpu import profiling

    if arguments.trace and not arguments.trace.parent.is_dir():
        raise FileError(f"cannot write {arguments.trace}: there is no folder {arguments.trace.parent}")
    options = {"precision": arguments.precision}
    profiles = profiling.profile(arguments.folder, arguments.device, arguments.context, **options)
    peak = profiling.Peak(1e9 * arguments.bandwidth, 1e12 * arguments.tflops) if arguments.bandwidth else None
    for name, times in profiles.items():
        print(f"{name}\n{profiling.table(times, peak, arguments.each)}\n")
    if arguments.trace:
        profiling.write_trace(arguments.trace, profiles)
    return 0


def merge(arguments: argparse.Namespace) -> int:
    """`executorch-webgpu merge DIR DIR… --out DIR`"""
    from executorch_webgpu import variants

    check_writable(arguments.out)
    variants.merge(arguments.folders, arguments.out)
    return 0


def inspect(arguments: argparse.Namespace) -> int:
    """`executorch-webgpu inspect model.pte …`"""
    from executorch_webgpu.inspect import main as inspect_main

    return inspect_main(arguments.rest) or 0


def bits(text: str) -> int:
    """4, 8, 32, int4, int8; none and f32 mean 32."""
    names = {"4": 4, "8": 8, "32": 32, "int4": 4, "int8": 8, "none": 32, "f32": 32}
    if text not in names:
        raise argparse.ArgumentTypeError(f"{text!r} is none of 4, 8, none (int4, int8, f32)")
    return names[text]


def positions(text: str) -> int:
    """The length of a cache: 4 or more."""
    if not text.isdecimal() or int(text) < 4:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of positions: 4 or more")
    return int(text)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="executorch-webgpu", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)

    one = commands.add_parser("export", help="make a model folder by a recipe")
    one.add_argument("recipe", help="one of: " + ", ".join(RECIPES))
    one.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to write")
    one.add_argument("--from", dest="source", type=Path, metavar="DIR", help="a Hugging Face model on this machine")
    one.add_argument("--bits", type=bits, metavar="N", help="of the matrices: 4, 8, or none (f32, as they are)")
    one.add_argument("--group", type=int, choices=(32, 64, 128), help="values that share a scale, with 4 bits")
    one.add_argument(
        "--symmetric", action="store_const", const=True, default=None, help="4 bits without a minimum per group"
    )
    one.add_argument(
        "--affine",
        dest="symmetric",
        action="store_const",
        const=False,
        help="4 bits with a minimum per group (default)",
    )
    one.add_argument("--embedding-bits", type=bits, metavar="N", help="of the embedding and the head, as --bits")
    one.add_argument(
        "--head", type=bits, metavar="int4|int8|none", help="of the head, and of an embedding that is tied to it"
    )
    one.add_argument(
        "--context", "--max-len", dest="max_len", type=positions, metavar="N", help="positions in the cache"
    )
    one.add_argument(
        "--max-call", type=int, metavar="N", help="the most tokens that one call may bring: bounds its memory"
    )
    one.add_argument("--logits", choices=("last", "all"), help="all: an evaluation build, logits of every position")
    one.add_argument(
        "--random-weights", action="store_true", help="of the right shapes, for measurements; --from is not needed"
    )
    one.add_argument(
        "--structure-only",
        action="store_true",
        help="no quantised weights, but a list of them, for benchmarks/llm/synthetic.py",
    )
    one.set_defaults(run=export)

    commands.add_parser("recipes", help="list the recipes").set_defaults(run=recipes)

    one = commands.add_parser("run", help="let a language model answer")
    one.add_argument("folder", type=Path, help="a model folder")
    one.add_argument("prompt")
    one.add_argument(
        "--device", choices=("auto", "webgpu", "cpu"), default="auto", help="default: a GPU if there is one"
    )
    one.add_argument("--max-tokens", type=int, metavar="N", help="default: up to the end of the context")
    one.add_argument("--temperature", type=float, default=0.0, metavar="T", help="default 0: the likeliest token")
    one.add_argument("--top-p", type=float, default=1.0, metavar="P")
    one.add_argument("--seed", type=int, default=0, metavar="N")
    one.add_argument(
        "--adapter", type=Path, action="append", default=[], metavar="DIR", help="a LoRA adapter of peft; repeatable"
    )
    one.add_argument("--variant", metavar="NAME", help="of the folder's manifest; default: its first")
    one.add_argument("--precision", choices=("f32", "f16"), default="f32", help="of intermediates on a GPU")
    one.add_argument(
        "--check-values", action="store_true", help="slow: name the first operator that gives a NaN or an infinity"
    )
    one.add_argument("--raw", action="store_true", help="continue the text, without the model's chat template")
    one.set_defaults(run=run)

    one = commands.add_parser("merge", help="make one model folder of several, as variants of one model")
    one.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="a model folder; the best one first")
    one.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to write")
    one.set_defaults(run=merge)

    one = commands.add_parser("profile", help="time every kernel of a prompt and of a token")
    one.add_argument("folder", type=Path, help="a model folder")
    one.add_argument("--device", choices=("auto", "webgpu", "cpu"), default="auto")
    one.add_argument("--precision", choices=("f32", "f16"), default="f32")
    one.add_argument("--context", type=int, default=128, metavar="N", help="tokens of the prompt")
    one.add_argument(
        "--bandwidth", type=float, metavar="GB/s", help="of this machine's memory: tells the part of the floor"
    )
    one.add_argument("--tflops", type=float, default=float("inf"), metavar="T", help="of this machine, for the same")
    one.add_argument("--each", action="store_true", help="one line a dispatch instead of one a kernel")
    one.add_argument("--trace", type=Path, metavar="FILE", help="also write a trace for ui.perfetto.dev")
    one.set_defaults(run=profile)

    # Its arguments are its own: it can be run as a module, too.
    commands.add_parser("inspect", help="what is in a program", add_help=False).set_defaults(run=inspect)
    return top


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 with a message on stderr."""
    arguments, rest = parser().parse_known_args(argv)
    if rest and arguments.command != "inspect":
        parser().error(f"unrecognized arguments: {' '.join(rest)}")
    arguments.rest = rest
    try:
        return arguments.run(arguments)
    except (RecipeError, ExecuTorchWebGPUError) as error:
        print(f"executorch-webgpu: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `… | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ModuleNotFoundError as error:
        name = (error.name or "").split(".")[0]
        hint = "" if name == "executorch_webgpu" else f": pip install {name}"
        print(f"executorch-webgpu: the package {error.name} is missing{hint}", file=sys.stderr)
    except OSError as error:
        text = error if error.filename is None else f"{error.filename}: {error.strerror}"
        print(f"executorch-webgpu: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
