"""Writes a model folder: what a hub repository of a model holds.

model.pte                the program; its weights are inside
weights.json             with --structure-only: the weights that are to be made up (executorch_webgpu.structure)
manifest.json            files with sizes and hashes, variants, versions, task
recipe.json              the recipe and the options that made it
README.md                the model card
tokenizer.json, tokenizer_config.json, generation_config.json     of a language model
labels.txt, preprocess.json                                       of a classifier
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from executorch_webgpu.limits import limits
from executorch_webgpu.recipes.base import BuiltModel, ExportOptions, Recipe
from executorch_webgpu.variants import MANIFEST_FORMAT

CHUNK_BYTES = 1 << 20  # a download is verified and resumed by chunks of this size
PROGRAM = "model.pte"

# Called with what is being said, and the seconds that a step took when it ends (None: it begins, or there is news).
Progress = Callable[[str, float | None], None]


@contextmanager
def step(progress: Progress, text: str) -> Iterator[None]:
    """Reports a step before and after."""
    progress(f"{text} …", None)
    began = time.perf_counter()
    yield
    progress(text, time.perf_counter() - began)


def export_methods(built: BuiltModel) -> dict[str, ExportedProgram]:
    """`torch.export` of every method."""
    with torch.no_grad():
        programs = {
            name: torch.export.export(method.module, method.inputs, dynamic_shapes=method.dynamic_shapes)
            for name, method in built.methods.items()
        }
    for program in programs.values():
        drop_unused_buffers(program)
    return programs


def drop_unused_buffers(program: ExportedProgram) -> None:
    """Removes, in place, the buffers that nothing reads.

    A quantised weight that two modules share (a tied embedding) is exported under two names, one of them unused.
    executorch drops unused parameters, but would store such a buffer once more, beside the delegate.
    """
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    used = []
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.BUFFER and not nodes[spec.arg.name].users:
            program.state_dict.pop(spec.target, None)
            program.constants.pop(spec.target, None)
            program.graph.erase_node(nodes[spec.arg.name])
        else:
            used.append(spec)
    program.graph_signature.input_specs[:] = used
    program.graph_module.recompile()


def lower(
    programs: dict[str, ExportedProgram], constant_methods: dict, structure_only: bool = False, verify: bool = True
):
    """Delegates what the runtime can run. Returns executorch's EdgeProgramManager and the partitioner's report."""
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    from executorch_webgpu.partitioner import WebGPUPartitioner

    partitioner = WebGPUPartitioner(structure_only=structure_only, verify=verify)
    lowered = to_edge_transform_and_lower(
        programs,
        partitioner=[partitioner],
        constant_methods=constant_methods,
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    return lowered, partitioner.report()


def describe_file(path: Path, root: Path) -> dict:
    """Manifest entry of a file: path, size, sha256 of the whole and of each chunk."""
    whole, chunks = hashlib.sha256(), []
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            whole.update(chunk)
            chunks.append(hashlib.sha256(chunk).hexdigest())
    return {
        "path": path.relative_to(root).as_posix(),
        "size": path.stat().st_size,
        "sha256": whole.hexdigest(),
        "chunks": chunks,
    }


def versions() -> dict:
    """Of what made the file."""
    from executorch_webgpu import __version__
    from executorch_webgpu.lowering.payload import VERSION

    packages = {name: metadata.version(name) for name in ("executorch", "torch")}
    return {"exporter": __version__, "payload": VERSION, **packages}


def variant_name(weights: dict) -> str:
    """Such as int4-g32, int4-g64-symmetric, int8 or f32."""
    if weights["bits"] == 32:
        return "f32"
    name = f"int{weights['bits']}"
    if weights["bits"] == 4:
        name += f"-g{weights['group']}" + ("-symmetric" if weights["symmetric"] else "")
    return name


def write_manifest(
    folder: Path, recipe: Recipe, built: BuiltModel, needed: dict[str, int], files: Iterable[str]
) -> None:
    """manifest.json of the files that are in the folder by now."""
    names = sorted([PROGRAM, "recipe.json", "README.md", *files])
    manifest = {
        "format": MANIFEST_FORMAT,
        "name": built.name or recipe.name,
        "recipe": recipe.name,
        "task": recipe.task,
        "versions": versions(),
        "chunk_bytes": CHUNK_BYTES,
        "files": [describe_file(folder / name, folder) for name in names],
        "variants": [
            {
                "name": variant_name(built.weights),
                "program": PROGRAM,
                "dtype": "f32",
                "precisions": list(built.precisions),
                "weights": dict(built.weights),
                "limits": needed,
                "metadata": dict(built.constant_methods),
            }
        ],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def card_text(recipe: Recipe, built: BuiltModel, options: ExportOptions, size: int) -> str:
    """The model card. Accuracy is stated only where it was measured."""
    card, meta = built.card, built.constant_methods
    weights = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in built.weights.items())
    facts = [
        f"- Task: {recipe.task}",
        f"- Licence: {card.licence}",
        f"- Weights: {card.source}",
        f"- Stored as: {weights}",
        f"- Size: {PROGRAM} {size:,} bytes ({size / 1e6:.1f} MB)",
    ]
    if "get_max_context_len" in meta:
        facts.append(f"- Positions in the cache: {meta['get_max_context_len']}, vocabulary: {meta['get_vocab_size']}")
    made_with = ", ".join(f"{name} {version}" for name, version in versions().items())
    accuracy = card.accuracy or ("Not measured for this file.",)
    lines = [f"# {card.title}", "", *facts, *(f"- {note}" for note in card.notes)]
    lines += ["", "## Accuracy", "", *(f"- {line}" for line in accuracy)]
    lines += ["", "## Made by", "", "```", command(recipe, options), "```", "", f"with {made_with}.", ""]
    return "\n".join(lines)


def public(options: ExportOptions) -> dict:
    """The given options; of a source only the folder's name, for where it lies is the exporter's own business."""
    return {k: v.resolve().name if k == "source" else v for k, v in options.given().items()}


def command(recipe: Recipe, options: ExportOptions) -> str:
    """The command line that makes this folder again."""
    words = ["executorch-webgpu", "export", recipe.name, "--out", "DIR"]
    for name, value in public(options).items():
        flag = "--from" if name == "source" else "--" + name.replace("_", "-")
        if name == "symmetric":
            words.append(flag if value else "--affine")
        elif name == "max_len":
            words += ["--context", str(value)]
        elif name == "head_bits":
            words += ["--head", f"int{value}" if value < 32 else "f32"]
        elif value is True:
            words.append(flag)
        else:
            words += [flag, str(value)]
    return " ".join(words)


def write(recipe: Recipe, options: ExportOptions, folder: Path, progress: Progress) -> Path:
    """Builds, exports, lowers and writes the model of a recipe into `folder` (made if missing). Returns its program.

    Raises RecipeError where the recipe cannot be built from what is there; whatever torch and executorch raise, else.
    """
    from executorch.exir import ExecutorchBackendConfig

    from executorch_webgpu import structure

    with step(progress, "loading weights"):
        built = recipe.build(options)
    with step(progress, "exporting with torch.export"):
        programs = export_methods(built)
        needed = limits({name: method.module for name, method in built.methods.items()}, programs)
    with step(progress, "lowering to the WebGPU delegate"):
        structure_only = bool(options.structure_only)
        lowered, report = lower(programs, dict(built.constant_methods), structure_only, verify=not built.made_up)
    # Whoever exports should see at once what will run where, and why.
    progress(str(report), None)
    with step(progress, "making the program"):
        program = lowered.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=True))
    with step(progress, f"writing {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        # The manifest comes last: a folder without one is not complete.
        (folder / "manifest.json").unlink(missing_ok=True)
        path = folder / PROGRAM
        with path.open("wb") as file:
            program.write_to_file(file)
        files = dict(built.files)
        if structure_only:
            files[structure.STRUCTURE] = structure.weights_json(lowered, built.constant_methods["get_vocab_size"])
        for name, content in files.items():
            (folder / name).write_bytes(content)
        (folder / "README.md").write_text(card_text(recipe, built, options, path.stat().st_size))
        made = {"recipe": recipe.name, "options": public(options)}
        (folder / "recipe.json").write_text(json.dumps({**made, "command": command(recipe, options)}, indent=2) + "\n")
        write_manifest(folder, recipe, built, needed, files)
    return path
